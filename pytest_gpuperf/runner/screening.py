"""The order of work: one run screens every test, more runs confirm what did not pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ..judge.interleaved import judge_comparison
from ..model.baseline import FULL_RUNS
from ..model.measurement import Measurement, Samples
from ..model.metrics import METRICS, MetricKind
from ..model.run import ComparedCall, Ending, StepCall, Stop, TestResult
from ..model.verdict import Outcome, TestVerdict, Verdict


MOST_FRESH_RUNS: Final = 8
"""Runs after which a test stays inconclusive: five clean ones and three made up for."""

RUNS_DESPITE_CAP: Final = 2
"""Runs a test may have whatever they cost: an exact metric is confirmed by a second."""

MOST_MADE_UP: Final = FULL_RUNS
"""Disturbed runs that a refresh makes up for."""

Group = tuple[str, ...]
"""Tests that share one fresh process."""

Run = Callable[[Sequence[Group], int], Sequence[TestResult]]
"""Measures each group in a fresh process; the second argument numbers the run from 0."""

JudgeCall = Callable[[Sequence[StepCall]], TestVerdict]
"""Judges one call by what each run measured of it, oldest first."""


@dataclass(slots=True)
class Case:
    """One test and what its runs found, oldest first."""

    test: str
    results: list[TestResult] = field(default_factory=list)

    @property
    def last(self) -> TestResult:
        """The first result that did not pass decides, else the newest."""
        failed = [r for r in self.results if r.ending is not Ending.PASSED]
        return failed[0] if failed else self.results[-1]

    @property
    def calls(self) -> Mapping[str, tuple[StepCall, ...]]:
        """What each run measured, by call; empty for a test that did not pass."""
        if self.last.ending is not Ending.PASSED:
            return {}
        return _by_call(r.calls for r in self.results)

    @property
    def measured(self) -> Mapping[str, tuple[StepCall, ...]]:
        """What each run measured before it ended, however it ended.

        An expected failure hides what it measured: the test states its own verdict.
        """
        return _by_call(r.calls for r in self.results if r.ending is not Ending.XFAILED)

    @property
    def judged(self) -> Mapping[str, tuple[StepCall, ...]]:
        """What is judged: a failed test needs no verdict, a skip must not hide one."""
        return {} if self.last.ending.fails else self.measured

    @property
    def stop(self) -> Stop | None:
        """How the test ended pytest in the first of its runs that did."""
        return next((r.stop for r in self.results if r.stop is not None), None)

    @property
    def knows_its_calls(self) -> bool:
        """Whether the test passed, so that it makes no other calls than those seen."""
        passed = self.last.ending is Ending.PASSED
        return passed and bool(self.calls or not self.last.asked)

    @property
    def comparisons(self) -> Mapping[str, tuple[ComparedCall, ...]]:
        """What each run compared, by call."""
        by_key: dict[str, list[ComparedCall]] = {}
        expected = self.last.ending is Ending.XFAILED
        for result in () if expected else self.results:
            for call in result.comparisons:
                by_key.setdefault(call.after.test, []).append(call)
        return {key: tuple(calls) for key, calls in by_key.items()}

    @property
    def measurements(self) -> Mapping[str, tuple[Measurement, ...]]:
        return {k: tuple(c.measurement for c in v) for k, v in self.calls.items()}

    @property
    def clean_runs(self) -> int:
        """Runs in which nothing disturbed any call."""
        return sum(
            not any(call.measurement.dirty for call in result.calls)
            for result in self.results
        )

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self.results)


def _by_call(
    runs: Iterable[Sequence[StepCall]],
) -> Mapping[str, tuple[StepCall, ...]]:
    by_key: dict[str, list[StepCall]] = {}
    for call in chain.from_iterable(runs):
        by_key.setdefault(call.measurement.test, []).append(call)
    return {key: tuple(calls) for key, calls in by_key.items()}


def screen(groups: Sequence[Group], run: Run) -> dict[str, Case]:
    """Run every group once; a test without a result is a failed one."""
    cases = {test: Case(test) for group in groups for test in group}
    _run(groups, 0, run, cases)
    return cases


def runs_of(cases: Mapping[str, Case]) -> dict[str, tuple[Measurement, ...]]:
    """Return what every run measured of every call, oldest first."""
    return {
        key: runs for case in cases.values() for key, runs in case.measurements.items()
    }


def first_runs(cases: Mapping[str, Case]) -> dict[str, Measurement]:
    """Return what the first run measured of every call."""
    return {key: runs[0] for key, runs in runs_of(cases).items()}


def samples_of(cases: Iterable[Case]) -> dict[str, tuple[Samples, ...]]:
    """Return what every run read of each call, oldest first."""
    return {
        key: tuple(run.samples for run in runs)
        for case in cases
        for key, runs in case.measurements.items()
    }


def confirm(
    groups: Sequence[Group],
    run: Run,
    cases: Mapping[str, Case],
    judge: JudgeCall,
    *,
    seconds: float,
) -> None:
    """Run again, in turn, the groups with a test that more runs could decide."""
    for number in range(1, MOST_FRESH_RUNS):
        wanting = [
            group
            for group in groups
            if any(_wants_more(cases[test], judge, seconds) for test in group)
        ]
        _run(wanting, number, run, cases)


def _wants_more(case: Case, judge: JudgeCall, seconds: float) -> bool:
    verdicts = [judge(calls) for calls in case.judged.values()]
    if not case.last.ending.fails:
        verdicts += map(judge_comparison, case.comparisons.values())
    if all(verdict.settled for verdict in verdicts):
        return False
    # A fault that is large enough to eat the cap must not hide in it.
    if any(v.proving or _is_open(v) for one in verdicts for v in one.verdicts):
        return True
    runs = len(case.results)
    # One more run of the mean cost must still fit under the cap.
    return runs < RUNS_DESPITE_CAP or case.seconds * (1 + 1 / runs) <= seconds


def _is_open(verdict: Verdict) -> bool:
    """Whether another run decides on a count or a size: no clock may."""
    metric = METRICS.get(verdict.metric)
    is_exact = metric is not None and metric.kind is MetricKind.EXACT
    return is_exact and not verdict.settled


def with_counts_of(first: Mapping[str, Measurement], result: TestResult) -> TestResult:
    """Give the calls of *result* of which only times were read what the *first* run saw.

    Counts, sizes and causes are those of the code, which both have run.
    """
    calls = tuple(
        replace(call, measurement=call.measurement.explained_by(first[key]))
        if (key := call.measurement.test) in first
        else call
        for call in result.calls
    )
    return replace(result, calls=calls)


def complete(
    groups: Sequence[Group],
    run: Run,
    cases: Mapping[str, Case],
    wanted: Mapping[str, int],
) -> None:
    """Give each *wanted* test, with its group, so many runs for its baseline.

    Disturbed runs are replaced: a baseline with them scatters too much to fail
    anything.
    """
    for number in range(1, max(wanted.values(), default=0) + MOST_MADE_UP):
        short = [
            group
            for group in groups
            if any(_is_short(cases[t], number, wanted[t]) for t in group if t in wanted)
        ]
        _run(short, number, run, cases)


def repeat(
    groups: Sequence[Group],
    run: Run,
    cases: Mapping[str, Case],
    is_wanted: Callable[[Case], bool],
) -> Sequence[Case]:
    """Run once more the groups with a test that *is_wanted*; return all their cases."""
    wanted = [g for g in groups if any(is_wanted(cases[test]) for test in g)]
    for group in wanted:
        number = max(len(cases[test].results) for test in group)
        _run([group], number, run, cases)
    return [cases[test] for group in wanted for test in group]


def _is_short(case: Case, number: int, wanted: int) -> bool:
    has_room = len(case.results) <= number < wanted + MOST_MADE_UP
    return has_room and case.clean_runs < wanted


def _run(
    groups: Sequence[Group], number: int, run: Run, cases: Mapping[str, Case]
) -> None:
    if not groups:
        return
    # By name: a measuring process that died midway returns fewer results than tests.
    found = {result.test: result for result in run(groups, number)}
    for test in (test for group in groups for test in group):
        lost = TestResult(
            test=test,
            ending=Ending.DIED,
            text="the measuring process gave no result for this test",
        )
        cases[test].results.append(found.get(test, lost))


NOT_RUN: Final = {
    True: f"{FULL_RUNS} runs that agree are asked for, and the tests ended before",
    False: "no time was left for another run, raise --gpuperf-seconds",
}
"""Why there was no run more, by whether it was for a count: time ends none of those."""


def settled(verdict: TestVerdict) -> TestVerdict:
    """Turn every verdict that wants another run into an INCONCLUSIVE that says so."""
    return replace(
        verdict,
        verdicts=tuple(
            replace(
                v,
                outcome=Outcome.INCONCLUSIVE,
                because=f"{v.because}; {NOT_RUN[_is_open(v)]}",
                settled=True,
            )
            if not v.settled
            else v
            for v in verdict.verdicts
        ),
    )
