"""What explains a failure: a run that records, and the commit of its baseline's code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any, Final

from ..baselines.store import path_of
from ..errors import UsageError
from ..files import read_regular_text
from ..measure.profile import TRACE_FOLDER, TRACE_SUFFIX
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.finding import Finding, FindingKind, Location
from ..model.measurement import Measurement
from ..model.metrics import PEAK_ALLOCATED, PEAK_RESERVED
from ..model.run import RunMode, TestResult
from ..model.verdict import TestVerdict, Verdict
from .git import Repository, short
from .outcome import Verdicts
from .request import Planned
from .screening import Case, Group, JudgeCall, repeat


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
        call.test
        for calls in verdicts.values()
        for call in calls.values()
        if any(verdict.outcome.fails for verdict in call.verdicts)
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


# Finds the commit with the code that a baseline is of, and the lines that it lacks.
#
# That is the commit that brought the baseline into the repository: code and baseline
# are committed together.


class RecordedCode:
    """Asks the repository of the project, if there is one, about its baselines."""

    def __init__(self, root: Path, baselines: Path, hardware: Hardware) -> None:
        """*baselines* is the folder of what was recorded on *hardware*, and on others."""
        self._root = root
        self._file = _real(path_of(baselines, hardware))
        self._repository: Repository | None = None
        try:
            self._repository = Repository.containing(root)
        except UsageError:  # a run is fine without git
            return

    @property
    def has_commits(self) -> bool:
        """Whether there is a repository with a commit in it."""
        return self._repository is not None and self._repository.has("HEAD")

    def commit_of(self, call: str, entry: Entry | None) -> str:
        """Return the commit with the code of *entry*, the baseline of *call*.

        Empty if git knows none.
        """
        repository = self._repository
        if repository is None or entry is None:
            return ""
        path = os.path.relpath(self._file, repository.top)
        stored = commit_that_stored(repository, path, call)
        return "" if stored is None or repository.is_cut_off(stored) else stored

    def with_changes(
        self, findings: Sequence[Finding], call: str, entry: Entry | None
    ) -> tuple[Finding, ...]:
        """Ask git about the lines; nothing is said if it does not know that code."""
        repository = self._repository
        commit = self.commit_of(call, entry) if findings else ""
        if repository is None or not commit:
            return tuple(findings)
        changed = cache(partial(repository.changed_lines, commit))

        def is_changed(at: Location) -> bool:
            path = os.path.relpath(_real(self._root / at.file), repository.top)
            return at.line in changed(path)

        return with_changes(findings, is_changed, short(commit))


def commit_that_stored(repository: Repository, path: str, call: str) -> str | None:
    """Return the commit that gave *call* the baseline it has in the file at *path*.

    ``None`` if no commit has what the file says now.
    """
    file = Path(repository.top, path)
    now, found = _entries(read_regular_text(file)).get(call), None
    # From the newest to the oldest: the last one that still has today's baseline has
    # stored it.
    for commit in repository.commits_of(path):
        if _entries_at(repository, commit, path).get(call) != now:
            break
        found = commit
    return found


@lru_cache(maxsize=64)
def _entries_at(repository: Repository, commit: str, path: str) -> dict[str, Any]:
    return _entries(repository.text_at(commit, path) or "")


def _entries(text: str) -> dict[str, Any]:
    """Return what a file says of each test; nothing if it is no baseline file."""
    try:
        entries = json.loads(text)["tests"]
    except (ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


# Lines that are not as they were in a commit.

LINES_THAT_CHANGE: Final = frozenset(
    {
        FindingKind.TIME,
        FindingKind.PEAK,
        FindingKind.MEMORY,
        FindingKind.LEFT,
        FindingKind.GARBAGE,
    }
)
"""Kinds of findings with lines that no baseline stores: git alone knows new ones."""

LEAST_HELD_SHARE: Final = 0.05
"""Share of the peak below which the memory of a line explains no growth."""


def with_changes(
    findings: Sequence[Finding], is_changed: Callable[[Location], bool], since: str
) -> tuple[Finding, ...]:
    """Say of each of *findings* if its line changed *since* a commit."""
    most_bytes = max((found.held_bytes for found in findings), default=0)
    return tuple(
        replace(found, changed_since=since)
        if _may_explain(found, most_bytes)
        and found.location
        and is_changed(found.location)
        else found
        for found in findings
    )


def _may_explain(finding: Finding, most_bytes: int) -> bool:
    small = finding.held_bytes < LEAST_HELD_SHARE * most_bytes
    is_time = finding.kind is FindingKind.TIME
    return finding.kind in LINES_THAT_CHANGE and (is_time or not small)
