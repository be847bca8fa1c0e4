"""``.gpuperf/results.json``: what an enabled run came to, for other programs.

It is begun with the session and finished with it: a run that died in between is seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from typing import Protocol

import pytest

from .assessed import Assessment
from .baselines.pending import write_ignored
from .commits.head import commit_of
from .devices.software import own_version
from .errors import GpuperfError
from .model.codec import encode_briefly
from .model.results import FILE
from .model.results import SAMPLES_FILE
from .model.results import Head
from .model.results import Record
from .model.results import Results
from .model.run import Report
from .model.verdict import worst_of
from .plan import repeated_options
from .published import COMMENT
from .published import QUALITY
from .published import Place
from .published import annotation_lines
from .published import forgiving
from .published import publish
from .report.outsiders import secrets_of
from .report.outsiders import shown_headline
from .report.outsiders import shown_verdict
from .report.results_json import dumps
from .report.samples_json import dumps as dumps_samples
from .report.verdict_json import from_json
from .report.whole_run import moved_line
from .report.whole_run import skipped_line
from .report.whole_run import suite_line
from .selection import SELECTION
from .session import announce
from .settings import Settings


class Run(Protocol):
    """The plugin that measures."""

    @property
    def assessment(self) -> Assessment | None:
        """What came of it, once it has measured."""

    @property
    def lost(self) -> list[str]:
        """Measured tests that pytest never reported."""


class ResultsFile:
    """Writes the file of one run: unfinished at first, whole when it is over."""

    def __init__(self, config: pytest.Config, settings: Settings, run: Run) -> None:
        self._config = config
        self._settings = settings
        self._run = run
        self._begun = Head(
            version=own_version(),
            strict=settings.strict,
            fail_on_improvement=settings.fail_on_improvement,
            missing_baseline=settings.missing_baseline.value,
            commit=commit_of(config.rootpath, os.environ),
        )
        self._place = Place(
            root=config.rootpath, artefacts=settings.artefacts, environ=os.environ
        )
        self._records: Mapping[str, Record] | None = None
        self._forgiven: set[str] = set()
        self._complaints: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Leave nothing older beside the results where this run can write none."""
        for name in (SAMPLES_FILE, COMMENT, QUALITY):
            with suppress(OSError):
                (self._settings.artefacts / name).unlink(missing_ok=True)
        self._write(FILE, partial(dumps, Results(head=self._begun)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and hasattr(report, "wasxfail"):
            self._forgiven.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        """Write behind everybody who may still change the exit status."""
        try:
            ended = yield
        except Exception:
            self._finish(int(pytest.ExitCode.TESTS_FAILED))  # as Python's own
            raise
        self._finish(int(session.exitstatus))
        return ended

    def _finish(self, exit_status: int) -> None:
        results, found = self._results(exit_status), self._run.assessment
        self._write(FILE, partial(dumps, results))
        if found is not None:
            self._write(SAMPLES_FILE, partial(dumps_samples, found.samples))
        file = found.baseline_file if found else ""
        for line in publish(forgiving(results, self._forgiven), self._place, file):
            self._complain(line)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if not self._place.is_annotated:
            return
        results = forgiving(self._results(int(exitstatus)), self._forgiven)
        for line in annotation_lines(results, self._place):
            terminalreporter.write_line(line)

    def _results(self, exit_status: int) -> Results:
        selection, found = self._config.stash[SELECTION], self._run.assessment
        head = replace(
            self._begun,
            exit_status=exit_status,
            collected=selection.collected,
            selected=selection.selected,
            unreported=tuple(self._run.lost),
        )
        if found is None:
            return Results(head=head)
        return Results(
            head=replace(
                head,
                hardware=found.hardware,
                notes=tuple(self._notes(found)),
            ),
            tests=self._tests(found, selection.where),
        )

    def _tests(
        self, found: Assessment, where: Mapping[str, str]
    ) -> Mapping[str, Record]:
        """Return the records, made once: there may be many."""
        if self._records is None:
            root = self._config.rootpath
            self._records = {
                test: record_of(report, root, where.get(test, ""))
                for test, report in found.reports.items()
            }
        return self._records

    def _notes(self, found: Assessment) -> Iterator[str]:
        moved = found.moved_with_the_environment
        if moved:
            yield moved_line(moved, repeated_options(self._settings)).text
        if found.suite:
            yield suite_line(found.suite).text
        if found.skipped_files:
            yield skipped_line(found.skipped_files).text

    def _write(self, name: str, text: Callable[[], str]) -> None:
        try:
            write_ignored(self._settings.artefacts / name, text())
        except GpuperfError as error:
            self._complain(f"gpuperf: {error}")

    def _complain(self, line: str) -> None:
        """Say once what may hold for every file, as of a folder that is read-only."""
        if line not in self._complaints:
            self._complaints.add(line)
            announce(self._config, line)


def record_of(report: Report, root: Path, where: str = "") -> Record:
    """Return *report* for people elsewhere: no path of this machine stands in it."""
    verdicts = [shown_verdict(from_json(text)) for text in report.verdicts]
    first, *_ = report.text.splitlines() or [""]
    return Record(
        ending=report.ending,
        outcome=worst_of(verdict.outcome for verdict in verdicts),
        headline=shown_headline(
            report.headline or first, root, Path.home(), secrets_of(os.environ)
        ),
        verdicts=tuple(encode_briefly(verdict) for verdict in verdicts),
        where=where,
    )
