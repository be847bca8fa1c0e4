"""Bars of A/B comparisons: two steps in turns, and pairs of processes."""

from __future__ import annotations

from typing import Final

import numpy as np
from effort import Effort
from effort import say
from figures import Figure
from figures import Share
from figures import Table
from figures import at_least
from figures import at_most
from figures import beside
from figures import changed
from figures import percent
from noise_profiles import PROFILES
from noise_profiles import Array
from noise_profiles import quads
from order_of_work import Tally
from order_of_work import compare_pairs
from order_of_work import compare_quads
from recorded_noise import WORKLOADS
from recorded_noise import pair_differences
from recorded_noise import quiet_quads
from targets import PAIRS
from targets import QUADS
from targets import against

from pytest_gpuperf.model.ab import Answer


POWER_BARS: Final = {0.03: 0.85, 0.05: 0.98}
PAIRS_FALSE_BAR: Final = 0.005

LENGTH: Final = 112
"""Quads of a synthetic series, as in the targets."""

MOST_PAIRS: Final = 8
OUTLIERS: Final = 0.02
"""Share of synthetic pairs that scatter five times as far, as in the targets."""

_MIRROR: Final = [1, 0, 3, 2]


def tables_of_quads(effort: Effort) -> list[Table]:
    return [_recorded_quads(), _synthetic_quads(effort)]


def tables_of_pairs(effort: Effort) -> list[Table]:
    return [_recorded_pairs(effort), _synthetic_pairs(effort)]


def _recorded_quads() -> Table:
    """Judge every recorded series, and every one with the names exchanged."""
    say("quads, recorded")
    series = quiet_quads()
    both = [*series, *(one[:, _MIRROR] for one in series)]
    unchanged = _compared(both, 0.0)
    figures = [
        at_most("+0 %, slower", unchanged.slower, 0.0, hurried=False),
        beside("+0 %, faster", unchanged.share(Answer.FASTER)),
        beside("+0 %, same", unchanged.share(Answer.SAME)),
    ]
    for slowdown, bar in POWER_BARS.items():
        found = _compared(both, slowdown).slower
        name = f"{changed(slowdown)}, slower"
        figures.append(at_least(name, found, bar, hurried=False))
    return Table(
        title=f"Two steps in turns, recorded in {len(series)} quiet series, every one "
        "also with the names exchanged",
        figures=figures,
    )


def _compared(series: list[Array], slowdown: float) -> Tally:
    tally = Tally()
    for seed, one in enumerate(series):
        tally.add(*compare_quads(_slowed(one, slowdown), seed=seed))
    return tally


def _slowed(series: Array, slowdown: float) -> Array:
    moved = series.copy()
    moved[:, 1:3] += np.log1p(slowdown)
    return moved


def _synthetic_quads(effort: Effort) -> Table:
    figures: list[Figure] = []
    for seed, profile in enumerate(PROFILES, start=31):
        say(f"quads, {profile.name}")
        random = np.random.default_rng(seed)
        series = list(quads(profile, effort.series, LENGTH, random))
        figures += [
            against(
                f"{name} {changed(slowdown)}",
                target,
                _compared(series, slowdown),
                "quads",
            )
            for (name, slowdown), target in QUADS.items()
            if name == profile.name
        ]
    return Table(
        title="Two steps in turns against their targets, within 4 standard errors: "
        "% same, slower, faster, inconclusive; quads",
        figures=figures,
    )


def _recorded_pairs(effort: Effort) -> Table:
    say("pairs")
    random = np.random.default_rng(41)
    figures: list[Figure] = []
    whole = Tally()
    for workload in WORKLOADS:
        found = pair_differences()[workload]
        tally = Tally()
        for _ in range(effort.pairs):
            drawn = random.choice(found, MOST_PAIRS, replace=False)
            tally.add(*compare_pairs(drawn * random.choice((-1, 1))))
        figures.append(beside(f"{workload}, slower or faster", _called(tally)))
        whole.join(tally)
    figures += [
        beside("all, slower", whole.slower),
        at_most(
            "all, slower or faster",
            _called(whole),
            PAIRS_FALSE_BAR,
            hurried=effort.hurried,
        ),
        beside("all, same", whole.share(Answer.SAME)),
    ]
    return Table(
        title="Pairs of processes that run the same step, drawn from 62 recorded",
        figures=figures,
    )


def _called(tally: Tally) -> Share:
    called = tally.slower.count + tally.share(Answer.FASTER).count
    return Share(count=called, total=tally.slower.total)


def _synthetic_pairs(effort: Effort) -> Table:
    random = np.random.default_rng(42)
    figures: list[Figure] = []
    for (scatter, slowdown), target in PAIRS.items():
        tally = Tally()
        for _ in range(effort.pairs):
            drawn = np.log1p(slowdown) + random.normal(0, scatter, MOST_PAIRS)
            hit = random.random(MOST_PAIRS) < OUTLIERS
            tally.add(
                *compare_pairs(drawn + hit * random.normal(0, 5 * scatter, MOST_PAIRS))
            )
        figures.append(
            against(
                f"sd {percent(scatter)} {changed(slowdown)}", target, tally, "pairs"
            )
        )
    return Table(
        title="Pairs of processes against their targets, within 4 standard errors: "
        "% same, slower, faster, inconclusive; pairs",
        figures=figures,
    )
