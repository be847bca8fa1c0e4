"""The terminal section: lines of the report room in pytest's own colours."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Final

from .assessed import Assessment
from .baselines.refresh import Change
from .model.run import Ending
from .model.verdict import Outcome
from .model.verdict import TestVerdict
from .report.acuity import acuity_lines
from .report.compared_table import compared_lines
from .report.counts import counts_line
from .report.counts import lost_line
from .report.drift import drift_lines
from .report.drift import drifted_line
from .report.drift import kept_lines
from .report.explanation import explanation_lines
from .report.findings import allowed_lines
from .report.leftovers import leftover_lines
from .report.table import Row
from .report.terminal import Line
from .report.terminal import Role
from .report.terminal import refresh_lines
from .report.terminal import summary_lines
from .report.whole_run import moved_line
from .report.whole_run import skipped_line
from .report.whole_run import suite_line


QUIET: Final = -1
"""Pytest's verbosity with ``-q``."""

MARKUP: Final[dict[Role, dict[str, bool]]] = {
    Role.PLAIN: {},
    Role.HEADER: {"bold": True},
    Role.GOOD: {"green": True},
    Role.WARN: {"yellow": True},
    Role.BAD: {"red": True},
}


def write_summary(reporter: Any, assessment: Assessment, lost: Sequence[str]) -> None:
    """Write the table, the refreshed baselines and the line that counts outcomes.

    With ``-q`` only what went wrong and what was refreshed; with ``-qq`` only what
    fails the run as a whole. The line that counts stands there always: a gate that
    says nothing cannot be told from one that did not run.
    """
    counts = counts_line(
        assessment.verdicts,
        assessment.hardware,
        unreported=lost,
        unjudged=_endings_without_verdict(assessment),
        refused=len(assessment.drifted_tests),
        note=assessment.note,
    )
    verbosity = reporter.config.get_verbosity()
    if verbosity >= QUIET:
        _write_table(reporter, assessment, verbosity)
        _write(reporter, _refresh_lines(assessment))
        _write(reporter, _untouched_lines(assessment, verbosity))
        _write(reporter, leftover_lines(assessment.leftovers, assessment.baseline_file))
    if verbosity > QUIET and assessment.acuity:
        _write(reporter, acuity_lines(assessment.acuity))
    _write(reporter, _whole_run_lines(assessment))
    _write(reporter, [counts])


def _write_table(reporter: Any, assessment: Assessment, verbosity: int) -> None:
    """Write a row a test, and with ``-v`` what was allowed."""
    shown = assessment.verdicts if verbosity > QUIET else _wrong(assessment)
    lines = [*summary_lines(shown), *compared_lines(shown)]
    if lines or verbosity > QUIET:
        reporter.write_sep("=", "gpuperf")
    _write(reporter, lines)
    if verbosity > 0:
        allowed = allowed_lines(assessment.verdicts)
        _write(reporter, [Line(text=text, role=Role.PLAIN) for text in allowed])
    if assessment.explained:
        _write(reporter, explanation_lines(assessment.verdicts))


def _wrong(assessment: Assessment) -> Sequence[TestVerdict]:
    """Return the verdicts that are undecided or failed a test, if by a setting."""
    failed = [t for t, r in assessment.reports.items() if r.ending is Ending.FAILED]
    return [
        verdict
        for verdict in assessment.verdicts
        if verdict.outcome is Outcome.INCONCLUSIVE
        or any(verdict.test == t or verdict.test.startswith(f"{t}#") for t in failed)
    ]


def _whole_run_lines(assessment: Assessment) -> Iterator[Line]:
    moved = assessment.moved_with_the_environment
    if assessment.drifts:
        yield drifted_line(assessment.drifted_tests, assessment.options)
    if moved:
        yield moved_line(moved, assessment.options)
    if assessment.suite:
        yield suite_line(assessment.suite)
    if assessment.skipped_files:
        yield skipped_line(assessment.skipped_files)


def write_lost(reporter: Any, lost: Sequence[str]) -> None:
    """Write the line of a run that measured nothing of what it was to measure."""
    _write(reporter, [lost_line(lost)])


def write_unlooked(reporter: Any, files: Sequence[str]) -> None:
    """Write the line of a run that measured nothing, where *files* may have been meant."""
    _write(reporter, [skipped_line(files)] if files else [])


def row_of(change: Change) -> Row:
    """Show what *change* says; the two rooms do not know each other."""
    return Row(
        test=change.test,
        metric=change.metric,
        old=change.old,
        new=change.new,
        anchor=change.anchor,
    )


def _refresh_lines(assessment: Assessment) -> Sequence[Line]:
    rows = [row_of(change) for change in assessment.refreshed]
    if not rows:
        return ()
    title = f"refreshed {assessment.baseline_file}:"
    return tuple(_titled(title, refresh_lines(rows)))


def _untouched_lines(assessment: Assessment, verbosity: int) -> Iterator[Line]:
    """What the refresh was to take over and did not: too small, or too large."""
    file = assessment.baseline_file
    if assessment.kept and verbosity > QUIET:
        title = f"kept in {file}, moved less than its own noise:"
        yield from _titled(title, kept_lines(assessment.kept))
    if assessment.drifts:
        title = f"not refreshed in {file}, too far from the anchor:"
        yield from _titled(title, drift_lines(assessment.drifts))


def _titled(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    yield Line(text="", role=Role.PLAIN)
    yield Line(text=title, role=Role.HEADER)
    yield from lines


def _endings_without_verdict(assessment: Assessment) -> Sequence[str]:
    """How the tests ended that have nothing to judge: by themselves."""
    return [
        report.ending.value
        for report in assessment.reports.values()
        if not report.verdicts
    ]


def _write(reporter: Any, lines: Iterable[Line]) -> None:
    for line in lines:
        reporter.write_line(line.text, **MARKUP[line.role])
