"""Bars of the stored baseline on a GPU that every day makes a little slower or faster."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from itertools import chain
from itertools import product
from itertools import repeat
from math import exp
from typing import Final

import numpy as np
from effort import Effort
from effort import say
from figures import Figure
from figures import Table
from figures import at_most
from figures import beside
from figures import changed
from figures import percent
from noise_profiles import Array
from numpy.random import Generator
from order_of_work import Tally
from order_of_work import gate_one
from order_of_work import kept
from order_of_work import measured

from pytest_gpuperf.model.baseline import FULL_RUNS
from pytest_gpuperf.model.baseline import MOST_RUNS
from pytest_gpuperf.model.baseline import OCCASION_RUNS
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.baseline import occasion_id
from pytest_gpuperf.model.baseline import spread_over_occasions
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.verdict import Outcome


FALSE_BAR: Final = 0.0005

SHIFTS: Final = (0.005, 0.01, 0.02, 0.03)
"""Standard deviations of log time between two occasions."""

OCCASIONS: Final = (1, 2, 3, 5, 10)
"""Stored occasions: a refresh, and what the product adds to it."""

SCATTERS: Final = (0.002, 0.003, 0.005, 0.010)
"""Standard deviations of log time from run to run; each test draws its own of them."""

SLOWDOWNS: Final = (0.03, 0.05, 0.10, 0.20)
FRESH: Final = 5
SEED: Final = 71

FIRST_DAY: Final = datetime(2026, 1, 1, 9, 0, tzinfo=timezone.utc)

SHARE_SLOWED: Final = 20
"""One in so many tests is slowed as well, and judged without regard to its day."""

Ends = Mapping[tuple[int, float, float], Tally]
"""What became of the tests, by stored occasions, shift and slowdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Logs of run times of many tests in which nothing changed, by test and run.

    ``scatter`` is the standard deviation from run to run of each test. Each stored run is of the one of the ``occasions`` that stands at its place.
    """

    stored: Array
    fresh: Array
    scatter: Array
    occasions: tuple[str, ...]

    @classmethod
    def drawn(cls, occasions: int, tests: int, shift: float, random: Generator) -> Days:
        """Draw *tests* that each have a machine of their own."""
        names = occasions_of(occasions)
        _, numbers = np.unique(names, return_inverse=True)
        days = random.normal(0, shift, (tests, occasions))[:, numbers]
        today = random.normal(0, shift, (tests, 1))
        scatter = random.choice(SCATTERS, (tests, 1))
        return cls(
            stored=days + scatter * random.normal(0, 1, days.shape),
            fresh=today + scatter * random.normal(0, 1, (tests, FRESH)),
            scatter=scatter[:, 0],
            occasions=names,
        )

    def judged(
        self,
        tests: int,
        slowdown: float = 0.0,
        kind: DeviceKind = DeviceKind.CUDA,
    ) -> Tally:
        """Take so many *tests* through the gate, slowed by so much."""
        tally = Tally()
        for end, runs in self._ends(tests, slowdown, kind):
            tally.add(end, runs)
        return tally

    def outcomes(self, slowdown: float) -> list[Outcome]:
        """Take all tests through the gate, slowed by so much."""
        ends = self._ends(len(self.fresh), slowdown, DeviceKind.CUDA)
        return [outcome for outcome, _ in ends]

    def _ends(
        self, tests: int, slowdown: float, kind: DeviceKind
    ) -> Iterator[tuple[Outcome, int]]:
        slow = self.fresh[:tests] + np.log1p(slowdown)
        for stored, fresh in zip(self.stored.tolist(), slow.tolist(), strict=False):
            baseline = [
                kept(_constant(log), occasion)
                for log, occasion in zip(stored, self.occasions, strict=True)
            ]
            yield gate_one(baseline, [measured(_constant(log), kind) for log in fresh])


def occasions_of(occasions: int) -> tuple[str, ...]:
    """Name the occasion of each stored run, as refreshes on so many days leave them."""
    names = [
        occasion_id(FIRST_DAY + timedelta(days=day), "0000") for day in range(occasions)
    ]
    counts = [FULL_RUNS, *repeat(OCCASION_RUNS, occasions - 1)]
    runs = chain.from_iterable(map(repeat, names, counts))
    spread = spread_over_occasions([RunSummary(occasion=n) for n in runs], MOST_RUNS)
    return tuple(run.occasion for run in spread)


def _constant(log: float) -> Distribution:
    time = 10 * exp(log)
    return Distribution(q10=time, q25=time, q50=time, mean=time, samples=100)


def tables(effort: Effort) -> list[Table]:
    random = np.random.default_rng(SEED)
    ends, blind = {}, {}
    few = effort.days // SHARE_SLOWED
    for occasions, shift in product(OCCASIONS, SHIFTS):
        say(f"days, {named(occasions, shift)}")
        days = Days.drawn(occasions, effort.days, shift, random)
        ends[occasions, shift, 0.0] = days.judged(effort.days)
        for slowdown in SLOWDOWNS:
            ends[occasions, shift, slowdown] = days.judged(few, slowdown)
        blind[occasions, shift] = days.judged(few, kind=DeviceKind.SCRIPTED)
    return [
        _blame_table(ends, effort),
        _blind_table(blind),
        _verdict_table(ends),
        _power_table(ends),
    ]


def _blame_table(ends: Ends, effort: Effort) -> Table:
    return Table(
        title="Days that differ, nothing changed: tests that fail",
        figures=[
            at_most(
                named(occasions, shift),
                ends[occasions, shift, 0.0].regressed,
                FALSE_BAR,
                hurried=effort.hurried,
            )
            for occasions, shift in product(OCCASIONS, SHIFTS)
        ],
    )


def _blind_table(blind: Mapping[tuple[int, float], Tally]) -> Table:
    return Table(
        title="Days that differ, nothing changed: tests that fail by the spread from "
        "run to run alone, as on devices of which no shift is assumed",
        figures=[
            beside(named(occasions, shift), tally.regressed)
            for (occasions, shift), tally in blind.items()
        ],
    )


def _verdict_table(ends: Ends) -> Table:
    return Table(
        title="Days that differ, nothing changed: % pass, inconclusive, improved; "
        "runs a test",
        figures=[
            Figure(
                name=named(occasions, shift),
                measured=_verdicts(ends[occasions, shift, 0.0]),
            )
            for occasions, shift in product(OCCASIONS, SHIFTS)
        ],
    )


def _verdicts(tally: Tally) -> str:
    ends = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
    shares = [f"{100 * tally.share(end).value:6.2f}" for end in ends]
    return f"{'  '.join(shares)}; {tally.mean_units:.2f}"


def _power_table(ends: Ends) -> Table:
    at = ", ".join(map(changed, SLOWDOWNS))
    return Table(
        title=f"Days that differ, slower by {at}: % that fail / pass in silence",
        figures=[
            Figure(
                name=named(occasions, shift),
                measured="   ".join(
                    _caught(ends[occasions, shift, slowdown]) for slowdown in SLOWDOWNS
                ),
            )
            for occasions, shift in product(OCCASIONS, SHIFTS)
        ],
    )


def _caught(tally: Tally) -> str:
    passed = tally.share(Outcome.PASS).value
    return f"{100 * tally.regressed.value:5.1f} /{100 * passed:5.1f}"


def named(occasions: int, shift: float) -> str:
    of = "1 occasion" if occasions == 1 else f"{occasions} occasions"
    return f"{of}, shifts of {percent(shift)}"
