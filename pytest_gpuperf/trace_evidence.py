"""Which failures are worth a run that traces a few steps, and where the traces stand."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final
from typing import Protocol

from .errors import UsageError
from .gate import Case
from .gate import Group
from .model.environment import DeviceKind
from .model.run import TestResult
from .model.verdict import TestVerdict
from .model.verdict import Verdict
from .plan import Planned
from .probes.trace_file import SUFFIX


TRACED: Final = frozenset({DeviceKind.CUDA, DeviceKind.CPU, DeviceKind.SCRIPTED})
"""Kinds of device with a profiler: the pretend one runs nothing that takes time."""

MOST_TRACES: Final = 5
"""Tests of a run that are traced, the worst: where more fail, their cause is one."""

FOLDER: Final = "traces"

Verdicts = Mapping[str, Mapping[str, TestVerdict]]
"""Verdicts by test and call."""


class Tracing(Protocol):
    """Runs tests once more, each in a fresh process, only to trace them."""

    def __call__(
        self, groups: Sequence[Group], number: int, *, traces: Path
    ) -> Sequence[TestResult]: ...


def forget_traces(artefacts: Path) -> None:
    """Remove what an earlier run left."""
    for path in (artefacts / FOLDER).glob(f"*{SUFFIX}"):
        with suppress(OSError):
            path.unlink()


def with_traces(
    verdicts: Verdicts,
    plan: Sequence[Planned],
    cases: Mapping[str, Case],
    run: Tracing,
    artefacts: Path,
) -> Verdicts:
    """Trace the tests that failed worst and name the files in their verdicts.

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
    with suppress(UsageError):
        results = run(groups, number, traces=artefacts / FOLDER)
    traces = _kept(results, verdicts, artefacts / FOLDER)
    return {
        test: {key: replace(v, trace=traces.get(key, "")) for key, v in calls.items()}
        for test, calls in verdicts.items()
    }


def _kept(
    results: Sequence[TestResult], verdicts: Verdicts, folder: Path
) -> dict[str, str]:
    """Return the traces of calls that failed, and remove those of their tests' others."""
    failed = {
        v.test for calls in verdicts.values() for v in calls.values() if _fails(v)
    }
    kept: dict[str, str] = {}
    for measurement in (c.measurement for result in results for c in result.calls):
        if measurement.test in failed:
            kept[measurement.test] = measurement.trace
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
    """How many times what it may take a call takes, at its worst; 0 for one that passed."""
    failing = [v for v in verdict.verdicts if v.outcome.fails]
    return max(map(_times, failing), default=0.0)


def _times(verdict: Verdict) -> float:
    """Every metric of a call is better when lower."""
    if verdict.now is None or not verdict.limit:
        return inf
    return verdict.now / verdict.limit
