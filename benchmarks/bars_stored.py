"""Bars of the stored baseline on synthetic GPUs: blame, power and cost, of tests and of suites."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import product
from typing import Final

import numpy as np
from noise import BOOST, LOCKED, PROFILES, SHARED, Array, Draw, Profile, draws
from numpy.random import Generator
from order_of_work import (
    COMPARE_FAIL,
    PEERS,
    Effort,
    Figure,
    Peer,
    Share,
    Table,
    Tally,
    at_least,
    at_most,
    beside,
    constant,
    distributions,
    gate_one,
    gate_suite,
    kept,
    measured,
    say,
    slowed,
)

from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.model.baseline import Entry, session_id
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.verdict import Outcome


FALSE_BAR: Final = 0.0005
POWER_BARS: Final = {LOCKED.name: 0.9999, BOOST.name: 0.9}
"""100 % and 90 %; the 100 is meant to a hundredth of a percent, in 200,000 draws."""

RUNS_BAR: Final = 1.4

POWER_AT: Final = 0.05
SLOWDOWNS: Final = (0.0, POWER_AT)

FIRST_DAY: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)

_SEEDS: Final = {LOCKED.name: 11, BOOST.name: 12, SHARED.name: 13}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one profile's tests, by slowdown, and by peer and slowdown.

    ``ours`` are judged by the spread from run to run alone, as on devices of which no
    shift between sessions is assumed, ``on_cuda`` with each stored run of its own day.
    """

    ours: dict[float, Tally] = field(default_factory=partial(defaultdict, Tally))
    on_cuda: dict[float, Tally] = field(default_factory=partial(defaultdict, Tally))
    theirs: dict[tuple[Peer, float], Share] = field(
        default_factory=partial(defaultdict, Share)
    )


def tables(effort: Effort) -> list[Table]:
    found = {profile.name: _judge_profile(profile, effort) for profile in PROFILES}
    return [
        _blame_table(found, effort),
        _power_table(found, effort),
        _cost_table(found),
        _suite_table(effort),
    ]


def _judge_profile(profile: Profile, effort: Effort) -> Found:
    found = Found()
    random = np.random.default_rng(_SEEDS[profile.name])
    done = 0
    for draw in draws(profile, effort.unchanged, random):
        _judge_draw(draw, found, slowdowns=SLOWDOWNS[: 1 + (done < effort.power)])
        if done < effort.peers:
            _show_to_peers(draw, found)
        done += len(draw.stored)
        if done % 20_000 == 0:
            say(f"stored, {profile.name}: {done:,} of {effort.unchanged:,} tests")
    return found


def _judge_draw(draw: Draw, found: Found, *, slowdowns: Sequence[float]) -> None:
    tests, stored_runs, _ = draw.stored.shape
    fresh_runs = draw.fresh.shape[1]
    stored, fresh = distributions(draw.stored), distributions(draw.fresh)
    for test in range(tests):
        baseline = [
            kept(times, session_id(FIRST_DAY + timedelta(days=day), "0000"))
            for day, times in enumerate(
                stored[test * stored_runs : (test + 1) * stored_runs]
            )
        ]
        runs = fresh[test * fresh_runs : (test + 1) * fresh_runs]
        sentinels_of = partial(
            _sentinels,
            tuple(draw.stored_sentinels[test].tolist()),
            tuple(draw.fresh_sentinels[test].tolist()),
        )
        for slowdown in slowdowns:
            slow = [slowed(times, slowdown) for times in runs]
            steady = [measured(times, DeviceKind.SCRIPTED) for times in slow]
            found.ours[slowdown].add(*gate_one(baseline, steady, sentinels_of))
            shifting = [measured(times, DeviceKind.CUDA) for times in slow]
            found.on_cuda[slowdown].add(*gate_one(baseline, shifting, sentinels_of))


def _sentinels(
    stored: tuple[float, ...], fresh: tuple[float, ...], runs: int
) -> Sentinels:
    return Sentinels(fresh=fresh[:runs], stored=stored)


def _show_to_peers(draw: Draw, found: Found) -> None:
    for peer, slowdown in product(PEERS, SLOWDOWNS):
        blamed = peer.blames(draw.stored, draw.fresh * (1 + slowdown))
        share = Share(count=int(blamed.sum()), total=len(blamed))
        found.theirs[peer, slowdown] += share


def _blame_table(found: Mapping[str, Found], effort: Effort) -> Table:
    ours = {f"{name}: gpuperf": of.ours for name, of in found.items()}
    ours |= {f"{name}: gpuperf, days apart": of.on_cuda for name, of in found.items()}
    figures = [
        at_most(name, of[0.0].regressed, FALSE_BAR, hurried=effort.hurried)
        for name, of in ours.items()
    ]
    return Table(
        title="Stored baseline, nothing changed: tests that fail",
        figures=[*figures, *_peer_figures(found, 0.0)],
    )


def _power_table(found: Mapping[str, Found], effort: Effort) -> Table:
    figures = [
        at_least(
            f"{name}: gpuperf",
            of.ours[POWER_AT].regressed,
            POWER_BARS[name],
            hurried=effort.hurried,
        )
        if name in POWER_BARS
        else beside(f"{name}: gpuperf", of.ours[POWER_AT].regressed)
        for name, of in found.items()
    ]
    on_cuda = [
        beside(f"{name}: gpuperf, days apart", of.on_cuda[POWER_AT].regressed)
        for name, of in found.items()
    ]
    return Table(
        title="Stored baseline, 5 % slower: tests that fail",
        figures=[*figures, *on_cuda, *_peer_figures(found, POWER_AT)],
    )


def _peer_figures(found: Mapping[str, Found], slowdown: float) -> list[Figure]:
    return [
        beside(f"{name}: {peer.name}", of.theirs[peer, slowdown])
        for name, of in found.items()
        for peer in PEERS
    ]


def _cost_table(found: Mapping[str, Found]) -> Table:
    figures = []
    for name, of in found.items():
        mean = of.ours[0.0].mean_units
        barred = name == BOOST.name
        figures.append(
            Figure(
                name=name,
                measured=f"{mean:.2f} runs",
                bar=f"<= {RUNS_BAR} runs" if barred else "",
                met=mean <= RUNS_BAR if barred else None,
            )
        )
    return Table(
        title="Stored baseline, nothing changed: fresh runs a test", figures=figures
    )


# Suites, through the product's own gate.

TESTS: Final = 40
SUITE_FALSE_BAR: Final = 0.01

STORED: Final = 8
FRESH: Final = 8

DAYS: Final = tuple(
    session_id(FIRST_DAY + timedelta(days=day), "0000") for day in range(STORED)
)
"""Each stored run is of a day of its own."""

JUDGED_ON: Final = {DeviceKind.SCRIPTED: "", DeviceKind.CUDA: ", days apart"}
"""Devices of which no shift between sessions is assumed, and of which one is."""

SEES: Final = (0.5, 1.2)
"""By how much of the machine's state a test is moved."""

NOISIER: Final = 0.4
"""Standard deviation of the logarithm of a test's own noise over the profile's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Logarithms of run summaries by test and run: tests share the machine's state.

    A slow machine stays slow for a whole session, the worst case for re-runs.
    """

    stored: Array
    fresh: Array

    @classmethod
    def drawn(cls, profile: Profile, random: Generator) -> Suite:
        sees = random.uniform(*SEES, (TESTS, 1))
        noise = profile.run * np.exp(random.normal(0, NOISIER, (TESTS, 1)))
        then = _machine(profile, STORED, random)
        now = _machine(profile, 1, random)
        return cls(
            stored=sees * then + noise * random.normal(0, 1, (TESTS, STORED)),
            fresh=sees * now + noise * random.normal(0, 1, (TESTS, FRESH)),
        )


def _machine(profile: Profile, sessions: int, random: Generator) -> Array:
    slow = random.random(sessions) < profile.slow_share
    added = slow * random.uniform(*profile.slow_run, sessions)
    return added + random.normal(0, profile.session, sessions)


def _suite_table(effort: Effort) -> Table:
    ours, theirs = [], []
    for seed, profile in enumerate(PROFILES, start=51):
        say(f"suites, {profile.name}")
        random = np.random.default_rng(seed)
        suites = [Suite.drawn(profile, random) for _ in range(effort.suites)]
        for kind, how in JUDGED_ON.items():
            fails = [_fails(suite, kind) for suite in suites]
            failed = Share(count=sum(fails), total=len(fails))
            name = f"{profile.name}: gpuperf{how}"
            ours.append(at_most(name, failed, SUITE_FALSE_BAR, hurried=effort.hurried))
        ratio = Share(count=sum(map(_compare_fail, suites)), total=len(suites))
        theirs.append(beside(f"{profile.name}: one stored run, +5 %", ratio))
    return Table(
        title=f"Suites of {TESTS} tests, nothing changed: runs of the suite that fail",
        figures=[*ours, *theirs],
    )


def _compare_fail(suite: Suite) -> bool:
    moved = suite.fresh[:, 0] - suite.stored[:, 0]
    return bool((moved > np.log1p(COMPARE_FAIL)).any())


def _fails(suite: Suite, kind: DeviceKind) -> bool:
    """Whether the gate of a suite in which nothing changed is red."""
    fresh = suite.fresh.tolist()
    entries = {
        str(test): Entry(runs=tuple(map(kept, map(constant, logs), DAYS)))
        for test, logs in enumerate(suite.stored.tolist())
    }
    found = gate_suite(
        entries,
        lambda test, number: measured(
            constant(fresh[int(test)][number]), kind, test=test
        ),
    )
    return any(outcome is Outcome.REGRESSED for outcome, _ in found.values())
