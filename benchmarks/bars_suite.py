"""Bars of a suite of 40 tests, through the product's own gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from math import exp
from math import sqrt
from statistics import fmean
from statistics import pstdev
from typing import Final

import numpy as np
from effort import Effort
from effort import say
from figures import SIGMAS
from figures import Figure
from figures import Share
from figures import Table
from figures import at_most
from figures import beside
from noise_profiles import PROFILES
from noise_profiles import Array
from noise_profiles import Profile
from numpy.random import Generator
from order_of_work import gate_suite
from order_of_work import kept
from order_of_work import measured
from peers import COMPARE_FAIL
from peers import SMOKE_RATIO
from peers import SMOKE_RUNS
from peers import SMOKE_SLOW
from targets import SUITE_POWER
from targets import SUITE_RUNS
from targets import SUITE_UNDECIDED
from targets import SUITES
from targets import agrees

from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import occasion_id
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.verdict import Outcome


TESTS: Final = 40
SLOW: Final = 3
SLOWDOWN: Final = 0.05
FALSE_BAR: Final = 0.01

STORED: Final = 8
FRESH: Final = 8

FIRST_DAY: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAYS: Final = tuple(
    occasion_id(FIRST_DAY + timedelta(days=day), "0000") for day in range(STORED)
)
"""Each stored run is of a day of its own."""

JUDGED_ON: Final = {DeviceKind.SCRIPTED: "", DeviceKind.CUDA: ", days apart"}
"""Devices of which no shift between occasions is assumed, and of which one is."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How a suite's tests ended; the first ``slow`` of them were slowed."""

    outcomes: Sequence[Outcome]
    runs: int
    slow: int

    @property
    def fails(self) -> bool:
        """Whether a test that did not change is blamed."""
        return Outcome.REGRESSED in self.outcomes[self.slow :]

    @property
    def caught(self) -> int:
        return self.outcomes[: self.slow].count(Outcome.REGRESSED)

    @property
    def undecided(self) -> int:
        return self.outcomes[self.slow :].count(Outcome.INCONCLUSIVE)


def tables(effort: Effort) -> list[Table]:
    return [_unchanged_table(effort), _target_table(effort)]


def _unchanged_table(effort: Effort) -> Table:
    ours, theirs = [], []
    for seed, profile in enumerate(PROFILES, start=51):
        say(f"suites, {profile.name}")
        random = np.random.default_rng(seed)
        suites = [Suite.drawn(profile, random) for _ in range(effort.suites)]
        for kind, how in JUDGED_ON.items():
            judged = [_judge(suite, kind, slow=0) for suite in suites]
            failed = Share(count=sum(one.fails for one in judged), total=len(judged))
            name = f"{profile.name}: gpuperf{how}"
            ours.append(at_most(name, failed, FALSE_BAR, hurried=effort.hurried))
        theirs += _peer_figures(profile, suites)
    return Table(
        title=f"Suites of {TESTS} tests, nothing changed: runs of the suite that fail",
        figures=[*ours, *theirs],
    )


def _peer_figures(profile: Profile, suites: Sequence[Suite]) -> list[Figure]:
    ratio = sum(_compare_fail(suite) for suite in suites)
    smoke = sum(_smoke_test(suite) for suite in suites)
    total = len(suites)
    return [
        beside(
            f"{profile.name}: one stored run, +5 %", Share(count=ratio, total=total)
        ),
        beside(
            f"{profile.name}: PyTorch, 2 of 3 above 3 %",
            Share(count=smoke, total=total),
        ),
    ]


def _compare_fail(suite: Suite) -> bool:
    moved = suite.fresh[:, 0] - suite.stored[:, 0]
    return bool((moved > np.log1p(COMPARE_FAIL)).any())


def _smoke_test(suite: Suite) -> bool:
    moved = suite.fresh[:, :SMOKE_RUNS] - np.median(suite.stored, axis=1, keepdims=True)
    slow = (moved > np.log1p(SMOKE_RATIO)).sum(axis=1)
    return bool((slow >= SMOKE_SLOW).any())


def _judge(suite: Suite, kind: DeviceKind, *, slow: int) -> Judged:
    moved = suite.fresh.copy()
    moved[:slow] += np.log1p(SLOWDOWN)
    fresh = moved.tolist()
    entries = {
        str(test): Entry(runs=tuple(map(kept, map(_constant, logs), DAYS)))
        for test, logs in enumerate(suite.stored.tolist())
    }
    found = gate_suite(
        entries,
        lambda test, number: measured(
            _constant(fresh[int(test)][number]), kind, test=test
        ),
    )
    return Judged(
        outcomes=[outcome for outcome, _ in found.values()],
        runs=sum(runs for _, runs in found.values()),
        slow=slow,
    )


def _constant(log: float) -> Distribution:
    time = 10 * exp(log)
    return Distribution(q10=time, q25=time, q50=time, mean=time, samples=100)


def _target_table(effort: Effort) -> Table:
    figures: list[Figure] = []
    for seed, profile in enumerate(PROFILES, start=61):
        if profile.name in SUITE_POWER:
            say(f"suites with {SLOW} slow tests, {profile.name}")
            random = np.random.default_rng(seed)
            judged = [
                _judge(Suite.drawn(profile, random), DeviceKind.SCRIPTED, slow=SLOW)
                for _ in range(effort.suites // 3)
            ]
            figures += _against(profile.name, judged)
    return Table(
        title=f"Suites of {TESTS} tests, {SLOW} of them 5 % slower, against their "
        "targets, within 4 standard errors of so many suites",
        figures=figures,
    )


def _against(name: str, judged: Sequence[Judged]) -> list[Figure]:
    suites = len(judged)
    caught = sum(one.caught for one in judged) / (SLOW * suites)
    undecided = sum(one.undecided for one in judged) / ((TESTS - SLOW) * suites)
    runs = [one.runs / TESTS for one in judged]
    error = pstdev(runs) * sqrt(1 / suites + 1 / SUITES)
    return [
        _target(f"{name}: slow ones that fail", caught, SUITE_POWER[name], suites),
        _target(f"{name}: others undecided", undecided, SUITE_UNDECIDED[name], suites),
        at_most(
            f"{name}: suites that fail another",
            Share(count=sum(one.fails for one in judged), total=suites),
            FALSE_BAR,
            hurried=True,
        ),
        Figure(
            name=f"{name}: runs a test",
            measured=f"{fmean(runs):.2f}",
            bar=f"<= {SUITE_RUNS[name]} + {SIGMAS * error:.2f}",
            met=fmean(runs) <= SUITE_RUNS[name] + SIGMAS * error,
        ),
    ]


def _target(name: str, share: float, percents: float, suites: int) -> Figure:
    """Count tests of one suite as one: they share its machine."""
    ours = Share(count=round(share * suites), total=suites)
    theirs = Share(count=round(percents / 100 * SUITES), total=SUITES)
    return Figure(
        name=name,
        measured=f"{100 * share:.1f} %",
        bar=f"{percents:.1f} %",
        met=agrees(ours, theirs),
    )
