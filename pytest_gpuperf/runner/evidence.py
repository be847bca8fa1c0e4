"""Runs failed tests once more to record a trace or the allocator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..measure.profile import TRACE_FOLDER, TRACE_SUFFIX
from ..model.measurement import Measurement
from ..model.metrics import PEAK_ALLOCATED, PEAK_RESERVED
from ..model.run import RunMode, TestResult
from ..model.verdict import TestVerdict, Verdict
from .request import Planned
from .screening import Case, Group, JudgeCall, repeat
from .verdicts import Verdicts


# Chooses the failures that deserve a run which records the allocator.

PEAK_METRICS: Final = frozenset({PEAK_ALLOCATED.name, PEAK_RESERVED.name})


RunIn = Callable[[Sequence[Group], int, RunMode], Sequence[TestResult]]
"""Runs each group in a fresh process; the number counts its runs from 0."""


def record_memory(
    groups: Sequence[Group],
    run: RunIn,
    cases: Mapping[str, Case],
    judge: JudgeCall,
) -> None:
    """Run what failed for its memory once more, and record what allocated it."""
    for case in repeat(
        groups, partial(_recording, run), cases, partial(fails_for_memory, judge)
    ):
        forget_unrecorded(case)


def _recording(
    run: RunIn, groups: Sequence[Group], number: int
) -> Sequence[TestResult]:
    return run(groups, number, RunMode.RECORD_MEMORY)


def forget_unrecorded(case: Case) -> None:
    """Drop the newest run of *case* if it has no recording, its only purpose."""
    newest = case.results[-1]
    if not any(call.measurement.snapshot for call in newest.calls):
        case.results.pop()


def fails_for_memory(judge: JudgeCall, case: Case) -> bool:
    """Whether a call of *case* failed because its step takes too much memory."""
    return any(
        verdict.outcome.fails and verdict.metric in PEAK_METRICS
        for calls in case.calls.values()
        for verdict in judge(calls).verdicts
    )


MOST_TRACES: Final = 5
"""The worst tests of a run are traced: if more fail, they usually share one cause."""


def forget_traces(artefacts: Path) -> None:
    """Remove what an earlier run left, and a link in its place, but nothing behind it."""
    folder = artefacts / TRACE_FOLDER
    if folder.is_symlink():
        folder.unlink()
    for path in folder.glob(f"*{TRACE_SUFFIX}"):
        with suppress(OSError):
            path.unlink()


def with_traces(
    verdicts: Verdicts,
    plan: Sequence[Planned],
    cases: Mapping[str, Case],
    run: RunIn,
    artefacts: Path,
) -> Verdicts:
    """Trace the tests that failed worst; name files and slow lines in their verdicts.

    Not those of several ranks, and none that compares: that would take long. A device
    that does not come free is no reason to lose what was judged.
    """
    alone = {planned.test for planned in plan if not planned.ranks}
    known = alone - {test for test, case in cases.items() if case.comparisons}
    tests = [test for test in _worst(verdicts) if test in known][:MOST_TRACES]
    if not tests:
        return verdicts
    number = max(len(cases[test].results) for test in tests)
    groups = [(test,) for test in tests]
    results: Sequence[TestResult] = ()
    # The device did not come free in time: the verdicts are worth more than their
    # traces.
    with suppress(UsageError):
        results = run(groups, number, RunMode.TRACE)
    traced = _kept(results, verdicts, artefacts / TRACE_FOLDER)
    return {
        test: {key: _with_trace(v, traced.get(key)) for key, v in calls.items()}
        for test, calls in verdicts.items()
    }


def _with_trace(verdict: TestVerdict, traced: Measurement | None) -> TestVerdict:
    if traced is None:
        return verdict
    findings = (*verdict.findings, *traced.findings)
    return replace(verdict, trace=traced.trace, findings=findings)


def _kept(
    results: Sequence[TestResult], verdicts: Verdicts, folder: Path
) -> dict[str, Measurement]:
    """Return what was traced of calls that failed; remove the files of the others."""
    failed = {
        v.test for calls in verdicts.values() for v in calls.values() if _fails(v)
    }
    kept: dict[str, Measurement] = {}
    for measurement in (c.measurement for result in results for c in result.calls):
        if measurement.test in failed:
            kept[measurement.test] = measurement
        elif measurement.trace:
            (folder / Path(measurement.trace).name).unlink(missing_ok=True)
    return kept


def _worst(verdicts: Verdicts) -> list[str]:
    """Return the tests that failed, the worst first."""
    excess = {
        test: max(map(_excess, calls.values()), default=0.0)
        for test, calls in verdicts.items()
    }
    failed = [test for test, times in excess.items() if times > 0]
    return sorted(failed, key=lambda test: -excess[test])


def _fails(verdict: TestVerdict) -> bool:
    return any(v.outcome.fails for v in verdict.verdicts)


def _excess(verdict: TestVerdict) -> float:
    """Return a call's worst ratio of value to limit; 0 if the call passed."""
    failing = [v for v in verdict.verdicts if v.outcome.fails]
    return max(map(_times, failing), default=0.0)


def _times(verdict: Verdict) -> float:
    """Every metric of a call is better when lower."""
    if verdict.now is None or not verdict.limit:
        # No value or a limit of 0: no ratio can be formed, and nothing exceeds its
        # limit by more.
        return inf
    return verdict.now / verdict.limit
