"""Bars of the stored baseline on a GPU that every day makes a little slower or faster.

Where stored days cannot tell, the gate's red or inconclusive test is settled by an A/B: pairs
of processes of both versions, which all run today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain, product, repeat
from typing import Final

import numpy as np
from noise import Array
from numpy.random import Generator
from order_of_work import (
    Effort,
    Figure,
    Table,
    Tally,
    at_least,
    at_most,
    changed,
    compare_pairs,
    constant,
    gate_one,
    kept,
    measured,
    percent,
    say,
)

from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.baseline import (
    FULL_RUNS,
    MOST_RUNS,
    SESSION_RUNS,
    RunSummary,
    session_id,
    spread_over_sessions,
)
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.verdict import Outcome


FALSE_BAR: Final = 0.0005

SHIFTS: Final = (0.005, 0.01, 0.02, 0.03)
"""Standard deviations of log time between two sessions."""

SESSIONS: Final = (1, 2, 3, 5, 10)
"""Stored sessions: a refresh, and what the product adds to it."""

SCATTERS: Final = (0.002, 0.003, 0.005, 0.010)
"""Standard deviations of log time from run to run; each test draws its own of them."""

SLOWDOWNS: Final = (0.03, 0.05, 0.10, 0.20)
FRESH: Final = 5
MOST_PAIRS: Final = 8
SEED: Final = 71

AB_SEED: Final = 73
AB_POWER_AT: Final = 0.05
AB_POWER_BAR: Final = 0.95
AB_SLOWDOWNS: Final = (0.03, AB_POWER_AT, 0.10)

SETTLED_AS: Final = {
    Answer.SLOWER: Outcome.REGRESSED,
    Answer.FASTER: Outcome.IMPROVED,
    Answer.SAME: Outcome.PASS,
}

FIRST_DAY: Final = datetime(2026, 1, 1, 9, 0, tzinfo=timezone.utc)

SHARE_SLOWED: Final = 20
"""One in so many tests is slowed as well, and judged without regard to its day."""

Ends = Mapping[tuple[int, float, float], Tally]
"""What became of the tests, by stored sessions, shift and slowdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Logs of run times of many tests in which nothing changed, by test and run.

    ``scatter`` is the standard deviation from run to run of each test. Each stored run is of the one of the ``sessions`` that stands at its place.
    """

    stored: Array
    fresh: Array
    scatter: Array
    sessions: tuple[str, ...]

    @classmethod
    def drawn(cls, sessions: int, tests: int, shift: float, random: Generator) -> Days:
        """Draw *tests* that each have a machine of their own."""
        names = sessions_of(sessions)
        _, numbers = np.unique(names, return_inverse=True)
        days = random.normal(0, shift, (tests, sessions))[:, numbers]
        today = random.normal(0, shift, (tests, 1))
        scatter = random.choice(SCATTERS, (tests, 1))
        return cls(
            stored=days + scatter * random.normal(0, 1, days.shape),
            fresh=today + scatter * random.normal(0, 1, (tests, FRESH)),
            scatter=scatter[:, 0],
            sessions=names,
        )

    def judged(self, tests: int, slowdown: float = 0.0) -> Tally:
        """Take so many *tests* through the gate, slowed by so much."""
        tally = Tally()
        for end, runs in self._ends(tests, slowdown):
            tally.add(end, runs)
        return tally

    def settled(self, tests: int, slowdown: float, random: Generator) -> Tally:
        """Take them through the gate, and what that leaves inconclusive through pairs.

        Units are comparisons: 1 for a test of which pairs were asked. Each process scatters
        as the stored runs do.
        """
        tally = Tally()
        ends = self._ends(tests, slowdown)
        for (outcome, _), scatter in zip(ends, self.scatter.tolist(), strict=False):
            if outcome is not Outcome.INCONCLUSIVE:
                tally.add(outcome, 0)
                continue
            drawn = random.normal(np.log1p(slowdown), 2**0.5 * scatter, MOST_PAIRS)
            answer, _ = compare_pairs(drawn.tolist())
            tally.add(SETTLED_AS.get(answer, Outcome.INCONCLUSIVE), 1)
        return tally

    def _ends(self, tests: int, slowdown: float) -> Iterator[tuple[Outcome, int]]:
        slow = self.fresh[:tests] + np.log1p(slowdown)
        for stored, fresh in zip(self.stored.tolist(), slow.tolist(), strict=False):
            baseline = [
                kept(constant(log), session)
                for log, session in zip(stored, self.sessions, strict=True)
            ]
            yield gate_one(
                baseline, [measured(constant(log), DeviceKind.CUDA) for log in fresh]
            )


def sessions_of(sessions: int) -> tuple[str, ...]:
    """Name the session of each stored run, as refreshes on so many days leave them."""
    names = [
        session_id(FIRST_DAY + timedelta(days=day), "0000") for day in range(sessions)
    ]
    counts = [FULL_RUNS, *repeat(SESSION_RUNS, sessions - 1)]
    runs = chain.from_iterable(map(repeat, names, counts))
    spread = spread_over_sessions([RunSummary(session=n) for n in runs], MOST_RUNS)
    return tuple(run.session for run in spread)


def tables(effort: Effort) -> list[Table]:
    random = np.random.default_rng(SEED)
    ends = {}
    few = effort.days // SHARE_SLOWED
    for sessions, shift in product(SESSIONS, SHIFTS):
        say(f"days, {named(sessions, shift)}")
        days = Days.drawn(sessions, effort.days, shift, random)
        ends[sessions, shift, 0.0] = days.judged(effort.days)
        for slowdown in SLOWDOWNS:
            ends[sessions, shift, slowdown] = days.judged(few, slowdown)
    return [
        _blame_table(ends, effort),
        _power_table(ends),
    ]


def _blame_table(ends: Ends, effort: Effort, how: str = "") -> Table:
    return Table(
        title=f"Days that differ {how}nothing changed: tests that fail",
        figures=[
            at_most(
                named(sessions, shift),
                ends[sessions, shift, 0.0].regressed,
                FALSE_BAR,
                hurried=effort.hurried,
            )
            for sessions, shift in product(SESSIONS, SHIFTS)
        ],
    )


def _power_table(ends: Ends) -> Table:
    at = ", ".join(map(changed, SLOWDOWNS))
    return Table(
        title=f"Days that differ, slower by {at}: % that fail / pass in silence",
        figures=[
            Figure(
                name=named(sessions, shift),
                measured="   ".join(
                    _caught(ends[sessions, shift, slowdown]) for slowdown in SLOWDOWNS
                ),
            )
            for sessions, shift in product(SESSIONS, SHIFTS)
        ],
    )


def _caught(tally: Tally) -> str:
    passed = tally.share(Outcome.PASS).value
    return f"{100 * tally.regressed.value:5.1f} /{100 * passed:5.1f}"


def named(sessions: int, shift: float) -> str:
    of = "1 session" if sessions == 1 else f"{sessions} sessions"
    return f"{of}, shifts of {percent(shift)}"


# What stored days leave inconclusive, settled by pairs of processes.


def tables_of_ab(effort: Effort) -> list[Table]:
    random = np.random.default_rng(AB_SEED)
    few = effort.days // SHARE_SLOWED
    ends = {}
    for sessions, shift in product(SESSIONS, SHIFTS):
        say(f"ab, {named(sessions, shift)}")
        for slowdown in (0.0, *AB_SLOWDOWNS):
            tests = few if slowdown else effort.days
            days = Days.drawn(sessions, tests, shift, random)
            ends[sessions, shift, slowdown] = days.settled(tests, slowdown, random)
    return [_blame_table(ends, effort, "and an A/B, "), *_ab_tables(ends, effort)]


def _ab_tables(ends: Ends, effort: Effort) -> Iterator[Table]:
    at = ", ".join(map(changed, AB_SLOWDOWNS))
    power, shares = [], []
    for sessions, shift in product(SESSIONS, SHIFTS):
        name = named(sessions, shift)
        found = ends[sessions, shift, AB_POWER_AT].regressed
        power.append(at_least(name, found, AB_POWER_BAR, hurried=effort.hurried))
        caught = (_caught(ends[sessions, shift, slow]) for slow in AB_SLOWDOWNS)
        compared = percent(ends[sessions, shift, 0.0].mean_units)
        shares.append(Figure(name=name, measured="   ".join([compared, *caught])))
    yield Table(
        title=f"Days that differ and an A/B, slower by {changed(AB_POWER_AT)}: "
        "tests that fail",
        figures=power,
    )
    yield Table(
        title="Days that differ and an A/B: % of unchanged tests compared; "
        f"% that fail / pass in silence at {at}",
        figures=shares,
    )
