"""The product's own judge, asked in the order in which a gate would ask it.

Beside it a peer, and the tables of what both say.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, inf, sqrt
from statistics import fmean
from typing import Final

import numpy as np
from noise import Array
from numpy.typing import NDArray

from pytest_gpuperf.judge.calls import judge_calls, settle_together, suite_context_of
from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.judge.process_pairs import judge_pairs, pair_schedule
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.judge.verdict import ALONE
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.baseline import Entry, RunSummary
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.measurement import Distribution, Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.run import Ending, StepCall, TestResult
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.runner.screening import confirm, runs_of, screen, settled


# What was measured, beside its bar, and of how many tests.

SIGMAS: Final = 4.0
"""Standard errors by which a share may miss its bar where it was drawn in a hurry."""

_COLUMNS: Final = ("figure", "measured", "bar", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many."""

    count: int = 0
    total: int = 0

    @property
    def value(self) -> float:
        return self.count / self.total

    def __add__(self, more: Share) -> Share:
        return Share(count=self.count + more.count, total=self.total + more.total)

    def __str__(self) -> str:
        return f"{percent(self.value)} ({self.count:,} of {self.total:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a table; ``met`` is ``None`` where there is no bar to meet."""

    name: str
    measured: str
    bar: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        met = {None: "", True: "met", False: "NOT MET"}[self.met]
        return self.name, self.measured, self.bar, met


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All figures of one bar."""

    title: str
    figures: Sequence[Figure]

    @property
    def missed(self) -> tuple[Figure, ...]:
        return tuple(figure for figure in self.figures if figure.met is False)

    def __str__(self) -> str:
        rows = [_COLUMNS, *(figure.cells for figure in self.figures)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))
            for row in rows
        ]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        body = "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])
        return f"{self.title}\n\n{body}\n"


def at_most(name: str, share: Share, bar: float, *, hurried: bool) -> Figure:
    """Return a figure that is met up to *bar*, if *hurried* plus simulation error."""
    limit = bar + (_error(bar, share.total) if hurried else 0.0)
    return _barred(name, share, f"<= {percent(bar)}", limit - bar, share.value <= limit)


def at_least(name: str, share: Share, bar: float, *, hurried: bool) -> Figure:
    """Return a figure that is met from *bar* on, if *hurried* less simulation error."""
    limit = bar - (_error(bar, share.total) if hurried else 0.0)
    return _barred(name, share, f">= {percent(bar)}", limit - bar, share.value >= limit)


def _barred(name: str, share: Share, bar: str, allowed: float, met: bool) -> Figure:  # noqa: FBT001
    if allowed:
        bar += f" {'+' if allowed > 0 else '-'} {percent(abs(allowed))}"
    return Figure(name=name, measured=str(share), bar=bar, met=met)


def beside(name: str, share: Share) -> Figure:
    """Return a figure that has no bar."""
    return Figure(name=name, measured=str(share))


def percent(share: float) -> str:
    """Write *share* with two digits behind the point, one from 10 % on."""
    digits = 1 if abs(share) >= 0.1 else 3 if 0 < abs(share) < 0.001 else 2
    return f"{100 * share:.{digits}f} %"


def changed(slowdown: float) -> str:
    """Write a slowdown as in ``+5 %``."""
    return f"{100 * slowdown:+.0f} %"


def _error(share: float, total: int) -> float:
    return SIGMAS * sqrt(share * (1 - share) / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Sizes of the samples. ``hurried`` ones leave their bars simulation error.

    ``unchanged`` tests are drawn a profile; ``power`` of them are slowed by 5 % as
    well, and ``peers`` are shown to the peers.
    ``recorded`` tests are drawn a workload, a fourth of them slowed, ``pairs`` a
    workload, ``suites`` a profile, ``days`` tests a shift and number of sessions, a
    twentieth of them slowed.
    """

    hurried: bool
    unchanged: int
    power: int
    peers: int
    recorded: int
    pairs: int
    suites: int
    days: int


FULL: Final = Effort(
    hurried=False,
    unchanged=200_000,
    power=200_000,
    peers=20_000,
    recorded=20_000,
    pairs=20_000,
    suites=1000,
    days=20_000,
)

QUICK: Final = Effort(
    hurried=True,
    unchanged=4000,
    power=1000,
    peers=1000,
    recorded=500,
    pairs=1000,
    suites=24,
    days=1000,
)


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


# The judge.

TOLERANCE: Final = 0.01
DETECT: Final = 0.03

DIRTY: Final = ("the process waited for a core",)


@dataclass(slots=True)
class Tally:
    """What became of many tests, and how many units each took: runs or pairs."""

    ends: Counter[Outcome | Answer] = field(default_factory=Counter)
    units: list[int] = field(default_factory=list)

    def add(self, end: Outcome | Answer, units: int) -> None:
        self.ends[end] += 1
        self.units.append(units)

    def join(self, other: Tally) -> None:
        self.ends += other.ends
        self.units += other.units

    def share(self, end: Outcome | Answer) -> Share:
        return Share(count=self.ends[end], total=len(self.units))

    @property
    def mean_units(self) -> float:
        return fmean(self.units)

    @property
    def regressed(self) -> Share:
        return self.share(Outcome.REGRESSED)

    @property
    def slower(self) -> Share:
        return self.share(Answer.SLOWER)


def distributions(times: Array) -> list[Distribution]:
    """Summarise the last axis of *times*; the others are flattened."""
    rows = times.reshape(-1, times.shape[-1])
    quantiles = np.quantile(rows, (0.10, 0.25, 0.50), axis=1)
    columns = np.vstack([quantiles, rows.mean(axis=1)[None]]).T.tolist()
    return [
        Distribution(q10=q10, q25=q25, q50=q50, mean=mean, samples=times.shape[-1])
        for q10, q25, q50, mean in columns
    ]


def slowed(times: Distribution, slowdown: float) -> Distribution:
    """Return what it would have been if each step had taken so much longer."""
    factor = 1 + slowdown
    return Distribution(
        q10=times.q10 * factor,
        q25=times.q25 * factor,
        q50=times.q50 * factor,
        mean=times.mean * factor,
        samples=times.samples,
    )


def constant(log: float) -> Distribution:
    """Return a run whose steps all took 10 ms, and so much more in its logarithm."""
    time = 10 * exp(log)
    return Distribution(q10=time, q25=time, q50=time, mean=time, samples=100)


def kept(times: Distribution, session: str = "") -> RunSummary:
    return RunSummary(times={STEP_MS.name: times}, session=session)


def measured(
    times: Distribution, kind: DeviceKind, *, test: str = "test", clean: bool = True
) -> Measurement:
    return Measurement(
        test=test,
        environment=Environment(hardware=Hardware(kind=kind, name="synthetic")),
        times={STEP_MS.name: times},
        dirty=() if clean else DIRTY,
    )


def gate_one(
    stored: Sequence[RunSummary],
    fresh: Sequence[Measurement],
    sentinels_of: Callable[[int], Sentinels | None] = lambda _: None,
) -> tuple[Outcome, int]:
    """Give one test run after run until its verdict is settled; *fresh* is all there is.

    ``sentinels_of`` gives the sentinels of so many runs.
    """
    for count in range(1, len(fresh) + 1):
        verdict = judge_stored(
            STEP_MS,
            fresh[:count],
            stored,
            tolerance=TOLERANCE,
            detect=DETECT,
            floor=0.0,
            suite_context=ALONE,
            sentinels=sentinels_of(count),
        )
        if verdict.settled:
            return verdict.outcome, count
    return Outcome.INCONCLUSIVE, len(fresh)


def gate_suite(
    entries: Mapping[str, Entry], run: Callable[[str, int], Measurement]
) -> dict[str, tuple[Outcome, int]]:
    """Take a whole suite through the gate: screen, confirm in turns, share out blame.

    *run* measures a test; its number counts from 0.
    """
    groups = [(test,) for test in entries]
    ask = partial(_ask, run)
    cases = screen(groups, ask)
    suite_context = suite_context_of(runs_of(cases), entries)

    def judge(calls: Sequence[StepCall]) -> TestVerdict:
        return judge_calls(calls, entries[calls[-1].measurement.test], suite_context)

    confirm(groups, ask, cases, judge, seconds=inf)
    suite_context = suite_context_of(runs_of(cases), entries)
    verdicts = settle_together(
        {
            test: {key: settled(judge(calls)) for key, calls in case.calls.items()}
            for test, case in cases.items()
        }
    )
    return {
        test: (calls[test].outcome, len(cases[test].results))
        for test, calls in verdicts.items()
    }


def _ask(
    run: Callable[[str, int], Measurement],
    groups: Sequence[Sequence[str]],
    number: int,
) -> list[TestResult]:
    return [
        TestResult(
            test=test,
            ending=Ending.PASSED,
            calls=(StepCall(measurement=run(test, number)),),
        )
        for group in groups
        for test in group
    ]


def compare_pairs(differences: Iterable[float]) -> tuple[Answer, int]:
    """Decide at each look of the judge; there are as many pairs as it can ask for."""
    schedule = pair_schedule(TOLERANCE, DETECT)
    pairs = list(differences)
    for look in schedule.looks:
        answer = judge_pairs(pairs[:look], schedule).answer
        if answer is not Answer.MORE:
            return answer, look
    return Answer.INCONCLUSIVE, len(pairs)


# pytest-benchmark, which compares one run with one: the oldest of each.

Blamed = NDArray[np.bool_]

COMPARE_FAIL: Final = 0.05
"""Threshold of the examples in pytest-benchmark's manual."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A rule: which tests it blames, by times of stored and fresh runs, by test, run, step."""

    name: str
    blames: Callable[[Array, Array], Blamed]


def compare_fail_min(stored: Array, fresh: Array) -> Blamed:
    """``--benchmark-compare-fail=min:5%``: the least time against that of one run."""
    return fresh[:, 0].min(axis=1) > (1 + COMPARE_FAIL) * stored[:, 0].min(axis=1)


def compare_fail_median(stored: Array, fresh: Array) -> Blamed:
    """``--benchmark-compare-fail=median:5%``."""
    now, then = np.median(fresh[:, 0], axis=1), np.median(stored[:, 0], axis=1)
    return now > (1 + COMPARE_FAIL) * then


PEERS: Final = (
    Peer("pytest-benchmark, min +5 %", compare_fail_min),
    Peer("pytest-benchmark, median +5 %", compare_fail_median),
)
