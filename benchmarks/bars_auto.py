"""Bars of the gate that asks other code where stored days cannot tell: ``ref=auto``."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Final

import numpy as np
from bars_compare import MOST_PAIRS
from bars_days import FALSE_BAR
from bars_days import OCCASIONS
from bars_days import SHARE_SLOWED
from bars_days import SHIFTS
from bars_days import Days
from bars_days import named
from effort import Effort
from effort import say
from figures import Figure
from figures import Table
from figures import at_least
from figures import at_most
from figures import changed
from figures import percent
from noise_profiles import BOOST
from noise_profiles import quads
from numpy.random import Generator
from order_of_work import Tally
from order_of_work import compare_pairs
from order_of_work import compare_quads

from pytest_gpuperf.judge.ab import SETTLED_AS
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.verdict import Outcome


POWER_AT: Final = 0.05
POWER_BAR: Final = 0.95
SLOWDOWNS: Final = (0.03, POWER_AT, 0.10)
SEED: Final = 73

QUADS: Final = 56
"""Blocks in turns that there is time for; a comparison may take four times as many."""

_SHARES: Final = {0.0: 1, **dict.fromkeys(SLOWDOWNS, SHARE_SLOWED)}

Comparison = Callable[[float], Answer]
"""Compares two versions of a test by the scatter of its runs."""

Ends = Mapping[tuple[str, int, float, float], Tally]
"""What became of the tests, by engine, stored occasions, shift and slowdown.

Units are comparisons: 1 for a test of which other code was asked.
"""


def tables(effort: Effort) -> list[Table]:
    random = np.random.default_rng(SEED)
    ends: dict[tuple[str, int, float, float], Tally] = {}
    answers = {
        slowdown: _in_one_process(effort.days // share, slowdown, random)
        for slowdown, share in _SHARES.items()
    }
    for occasions, shift in product(OCCASIONS, SHIFTS):
        say(f"ref=auto, {named(occasions, shift)}")
        for slowdown, share in _SHARES.items():
            days = Days.drawn(occasions, effort.days // share, shift, random)
            engines: dict[str, Comparison] = {
                "one process": partial(_of_those, random, answers[slowdown]),
                "pairs": partial(_in_pairs, random, slowdown),
            }
            for engine, tally in _settled(days, slowdown, engines).items():
                ends[engine, occasions, shift, slowdown] = tally
    return [_blame_table(ends, effort), _power_table(ends, effort), _share_table(ends)]


def _settled(
    days: Days, slowdown: float, engines: Mapping[str, Comparison]
) -> dict[str, Tally]:
    """Take the tests through the gate, and what that leaves undecided through an A/B.

    Both sides of it run today: the day is in both, and drops out.
    """
    tallies = {name: Tally() for name in engines}
    outcomes = days.outcomes(slowdown)
    for outcome, scatter in zip(outcomes, days.scatter.tolist(), strict=True):
        for name, compare in engines.items():
            tallies[name].add(*_end(outcome, partial(compare, scatter)))
    return tallies


def _end(outcome: Outcome, compare: Callable[[], Answer]) -> tuple[Outcome, int]:
    if outcome is not Outcome.INCONCLUSIVE:
        return outcome, 0
    return SETTLED_AS.get(compare(), Outcome.INCONCLUSIVE), 1


def _in_one_process(tests: int, slowdown: float, random: Generator) -> Sequence[Answer]:
    """Compare blocks in turns on a GPU that chooses its clocks.

    The process is that of both sides: its luck drops out as the day does.
    """
    say(f"ref=auto, {tests:,} comparisons in one process, {changed(slowdown)}")
    series = quads(BOOST, tests, QUADS, random)
    series[:, :, 1:3] += np.log1p(slowdown)
    return [compare_quads(one, seed=seed)[0] for seed, one in enumerate(series)]


def _of_those(random: Generator, answers: Sequence[Answer], _scatter: float) -> Answer:
    return answers[int(random.integers(len(answers)))]


def _in_pairs(random: Generator, slowdown: float, scatter: float) -> Answer:
    """Compare pairs of fresh processes, each of which scatters as the stored runs do."""
    scattered = random.normal(0, 2**0.5 * scatter, MOST_PAIRS)
    return compare_pairs((np.log1p(slowdown) + scattered).tolist())[0]


_ENGINES: Final = ("one process", "pairs")


def _blame_table(ends: Ends, effort: Effort) -> Table:
    return Table(
        title="ref=auto, days that differ, nothing changed: tests that fail",
        figures=[
            at_most(
                f"{engine}: {named(occasions, shift)}",
                ends[engine, occasions, shift, 0.0].regressed,
                FALSE_BAR,
                hurried=effort.hurried,
            )
            for engine, occasions, shift in product(_ENGINES, OCCASIONS, SHIFTS)
        ],
    )


def _power_table(ends: Ends, effort: Effort) -> Table:
    return Table(
        title=f"ref=auto, days that differ, slower by {changed(POWER_AT)}: tests that fail",
        figures=[
            at_least(
                f"{engine}: {named(occasions, shift)}",
                ends[engine, occasions, shift, POWER_AT].regressed,
                POWER_BAR,
                hurried=effort.hurried,
            )
            for engine, occasions, shift in product(_ENGINES, OCCASIONS, SHIFTS)
        ],
    )


def _share_table(ends: Ends) -> Table:
    at = ", ".join(map(changed, SLOWDOWNS))
    return Table(
        title="ref=auto: % of unchanged tests compared, and left undecided; "
        f"% that fail / pass in silence at {at}",
        figures=[
            Figure(
                name=f"{engine}: {named(occasions, shift)}",
                measured=_shares(ends, engine, occasions, shift),
            )
            for engine, occasions, shift in product(_ENGINES, OCCASIONS, SHIFTS)
        ],
    )


def _shares(ends: Ends, engine: str, occasions: int, shift: float) -> str:
    unchanged = ends[engine, occasions, shift, 0.0]
    slow = [ends[engine, occasions, shift, slowdown] for slowdown in SLOWDOWNS]
    undecided = unchanged.share(Outcome.INCONCLUSIVE)
    caught = "   ".join(
        f"{100 * one.regressed.value:5.1f} /{100 * one.share(Outcome.PASS).value:5.1f}"
        for one in slow
    )
    return f"{percent(unchanged.mean_units)}, {percent(undecided.value)};   {caught}"
