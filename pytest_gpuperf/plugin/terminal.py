"""The terminal section: lines of the report room in pytest's own colours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from ..files import found_above
from ..model.environment import DeviceKind
from ..model.run import Ending, Unseen
from ..model.verdict import Outcome, TestVerdict
from ..report.document import terminal
from ..report.screen.acceptance import (
    drift_lines,
    drifted_line,
    is_explained,
    kept_lines,
    kept_title,
    leftover_lines,
    misplaced_lines,
    other_device_lines,
    unmeasured_text,
)
from ..report.screen.comparison import compared_lines
from ..report.screen.counts import (
    acuity_lines,
    counts_line,
    evidence_line,
    inconclusive_lines,
    is_poor,
    moved_line,
    nothing_line,
    skipped_line,
    suite_line,
)
from ..report.screen.failure import explanation_lines
from ..report.screen.findings import allowed_lines, found_blocks
from ..report.screen.summary import (
    Line,
    LineRole,
    as_lines,
    refresh_lines,
    summary_lines,
)
from ..runner.evaluation import RunResult
from ..visible import visible_line
from .reported_items import write_painted


# One line of a terminal that is written over and over, and erased at the end.

LEAST_SECONDS: Final = 0.25
"""Between two changes of the line: nobody reads more of them."""


class LiveLine:
    """Shows the newest text; *write* takes it to the terminal at once."""

    def __init__(
        self,
        write: Callable[[str], object],
        width: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._width = width
        self._now = now
        self._shown = ""
        self._next = -inf

    def show(self, text: str) -> None:
        """Replace the last text by *text*, unless that is the same or too recent."""
        now = self._now()
        # One column less: a full line wraps on some terminals, and \r then returns to
        # the second half only.
        shown = "".join(map(_narrow, text))[: self._width() - 1]
        if now < self._next or shown == self._shown:
            return
        self._next = now + LEAST_SECONDS
        self._write(f"\r{shown.ljust(len(self._shown))}")
        self._shown = shown

    def erase(self) -> None:
        """Leave an empty line for others to write on; the next text may come at once."""
        if self._shown:
            self._write(f"\r{' ' * len(self._shown)}\r")
        self._shown, self._next = "", -inf


def _narrow(character: str) -> str:
    """Keep characters that take one column on every terminal and move no cursor."""
    return character if character.isascii() and character.isprintable() else "?"


class LogLines:
    """Writes the newest text as a line of its own, if lines cannot be overwritten.

    A run that is over in *seconds* writes none; later there is at most one per period.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._seconds = seconds
        self._now = now
        self._next = now() + seconds

    def show(self, text: str) -> None:
        """Write *text*, unless it is too soon for it."""
        now = self._now()
        if now >= self._next:
            self._next = now + self._seconds
            self._write("".join(map(_narrow, text)))

    def erase(self) -> None:
        """Leave what was written: others write below it."""


QUIET_VERBOSITY: Final = -1
"""Pytest's verbosity with ``-q``."""

MARKUP: Final[dict[LineRole, dict[str, bool]]] = {
    LineRole.PLAIN: {},
    LineRole.HEADER: {"bold": True},
    LineRole.GOOD: {"green": True},
    LineRole.WARN: {"yellow": True},
    LineRole.BAD: {"red": True},
}


FOUND: Final = "found by tests without a baseline:"


def write_summary(reporter: Any, run_result: RunResult, unseen: Unseen) -> None:
    """Write the table, the refreshed baselines and the line that counts outcomes.

    With ``-q`` only what went wrong and what was refreshed; with ``-qq`` only what
    fails the run as a whole. The line that counts is always written: a gate without
    output could not be distinguished from one that did not run.
    """
    counts = counts_line(
        run_result.verdicts,
        run_result.hardware,
        unseen,
        unchecked=_endings_without_verdict(run_result),
        refused=len(run_result.not_refreshed),
        note=run_result.note,
        warns=run_result.warns,
        unmeasured=run_result.unmeasured,
        stopped=run_result.stopped,
    )
    if reporter.config.get_verbosity() >= QUIET_VERBOSITY:
        _write_table(reporter, run_result, reporter.config.get_verbosity())
    write_rest(reporter, run_result, unseen)
    _write(reporter, [counts])


def write_rest(reporter: Any, run_result: RunResult, unseen: Unseen) -> None:
    """Write the lines between the table and the line that counts."""
    verbosity = reporter.config.get_verbosity()
    if verbosity >= QUIET_VERBOSITY:
        _write(reporter, _refresh_lines(run_result))
        _write(reporter, _untouched_lines(run_result, verbosity))
        new = {
            test.test
            for test in run_result.verdicts
            if any(v.outcome is Outcome.NO_BASELINE for v in test.verdicts)
        }.difference(run_result.stored)
        _write(
            reporter,
            leftover_lines(run_result.leftovers, run_result.baseline_file, new),
        )
        _write(reporter, _acuity_lines(run_result, verbosity))
        _write(reporter, _misplaced_lines(run_result, reporter.config.rootpath))
        _write(reporter, _other_device_lines(run_result, reporter.config))
    if verbosity > QUIET_VERBOSITY:
        _write(reporter, evidence_line(run_result.verdicts))
    _write(reporter, _whole_run_lines(run_result))
    if run_result.has_commits:
        _write(
            reporter,
            inconclusive_lines(
                run_result.verdicts,
                run_result.invocation,
                is_strict=unseen.is_strict,
            ),
        )
    _write(reporter, unmeasured_lines(unseen, run_result))


def _misplaced_lines(run_result: RunResult, root: Path) -> tuple[Line, ...]:
    """Look for the baselines of this hardware above *root*, if there are none below."""
    file = Path(run_result.baseline_file)
    if run_result.stored or file.is_absolute() or (root / file).exists():
        return ()
    above = found_above(root, file)
    return misplaced_lines(str(file), above) if above else ()


def _other_device_lines(run_result: RunResult, config: Any) -> tuple[Line, ...]:
    """Name a device that has baselines, if this one has none and none was typed."""
    file, kind = Path(run_result.baseline_file), run_result.hardware.kind
    path = config.rootpath / file
    if run_result.stored or path.exists() or config.getoption("gpuperf_device"):
        return ()
    usable = (DeviceKind.CPU, DeviceKind.SIMULATED)
    others = [
        other.value
        for other in usable
        if other is not kind and any(path.parent.glob(f"{other.value}*.json"))
    ]
    words = run_result.hardware.in_words
    return other_device_lines(words, str(file.parent), others[0]) if others else ()


def _acuity_lines(run_result: RunResult, verbosity: int) -> tuple[Line, ...]:
    """Say how far runs scatter; with ``-q`` only of a baseline that sees too little."""
    acuity = run_result.acuity
    if acuity is None or (verbosity == QUIET_VERBOSITY and not is_poor(acuity)):
        return ()
    return acuity_lines(acuity)


def unmeasured_lines(unseen: Unseen, run_result: RunResult) -> tuple[Line, ...]:
    """Name the baselines that this run did not look at, although their tests passed."""
    if not unseen.unmeasured:
        return ()
    return unmeasured_text(
        unseen.unmeasured,
        run_result.baseline_file,
        run_result.invocation,
        is_strict=unseen.is_strict,
    )


def _write_table(reporter: Any, run_result: RunResult, verbosity: int) -> None:
    """Write a row a test, and with ``-v`` what was allowed."""
    shown = run_result.verdicts if verbosity > QUIET_VERBOSITY else _wrong(run_result)
    lines = [*summary_lines(shown), *compared_lines(shown)]
    found = terminal(found_blocks(run_result.verdicts))
    if found or lines or verbosity > QUIET_VERBOSITY:
        reporter.write_sep("=", "gpuperf")
    if found:
        reporter.write_line(FOUND, bold=True)
        write_painted(reporter, map(visible_line, found))
    _write(reporter, lines)
    if verbosity > 0:
        _write(reporter, as_lines(allowed_lines(run_result.verdicts)))
    if run_result.explained:
        _write(reporter, explanation_lines(run_result.verdicts))


def _wrong(run_result: RunResult) -> Sequence[TestVerdict]:
    """Return the verdicts that are inconclusive or failed a test, if by a setting."""
    failed = _failed(run_result)
    return [
        verdict
        for verdict in run_result.verdicts
        if verdict.outcome is Outcome.INCONCLUSIVE
        or any(verdict.test == t or verdict.test.startswith(f"{t}#") for t in failed)
    ]


def _failed(run_result: RunResult) -> Sequence[str]:
    failing = {Ending.FAILED, Ending.WARNED}
    return [t for t, r in run_result.reports.items() if r.ending in failing]


def _whole_run_lines(run_result: RunResult) -> Iterator[Line]:
    moved = run_result.moved_with_the_environment
    drifted = run_result.drifted_tests
    # One test's own failure has the command.
    if len(drifted) > 1 or any(t not in _failed(run_result) for t in drifted):
        yield drifted_line(drifted, run_result.invocation)
    if moved:
        yield moved_line(moved, run_result.invocation, warns=run_result.warns)
    if run_result.suite:
        yield suite_line(run_result.suite)
    if run_result.skipped_files:
        yield skipped_line(run_result.skipped_files)


def write_nothing(reporter: Any, unseen: Unseen, why: str) -> None:
    """Write the last line of a run that measured nothing, however quiet it is."""
    _write(reporter, [nothing_line(unseen, why)])


def write_unlooked(reporter: Any, files: Sequence[str]) -> None:
    """Write the line of a run that measured nothing, where *files* may have been meant."""
    _write(reporter, [skipped_line(files)] if files else [])


def _refresh_lines(run_result: RunResult) -> Sequence[Line]:
    if not run_result.refreshed:
        return ()
    title = f"refreshed {run_result.baseline_file}:"
    return tuple(_titled(title, refresh_lines(run_result.refreshed)))


def _untouched_lines(run_result: RunResult, verbosity: int) -> Iterator[Line]:
    """What the refresh was to take over and did not: too small, or too large."""
    file = run_result.baseline_file
    if run_result.kept and verbosity > QUIET_VERBOSITY:
        title = kept_title(run_result.kept, file)
        yield from _titled(title, kept_lines(run_result.kept))
    verdicts = {verdict.test: verdict for verdict in run_result.verdicts}
    drifts = [d for d in run_result.drifts if not is_explained(d, verdicts.get(d.test))]
    if drifts:
        title = f"not refreshed in {file}, too far from the last accepted value:"
        yield from _titled(title, drift_lines(drifts))


def _titled(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    yield Line(text="")
    yield Line(text=title, role=LineRole.HEADER)
    yield from lines


def _endings_without_verdict(run_result: RunResult) -> Sequence[str]:
    """Return how the tests without a verdict ended."""
    return [
        report.ending.value
        for report in run_result.reports.values()
        if not report.verdicts
    ]


def _write(reporter: Any, lines: Iterable[Line]) -> None:
    for line in lines:
        reporter.write_line(visible_line(line.text), **MARKUP[line.role])
