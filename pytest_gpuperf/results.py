"""``.gpuperf/results.json``: what an enabled run came to, for other programs.

It is begun with the session and finished with it: a run that died in between is seen.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from .assessment import Assessment
from .baselines.pending import write_ignored
from .commits.head import commit_of
from .devices.software import own_version
from .errors import GpuperfError
from .model.codec import encode_briefly
from .model.results import FILE
from .model.results import Head
from .model.results import Record
from .model.results import Results
from .model.run import Report
from .model.verdict import worst_of
from .plan import repeated_options
from .report.outsiders import shown_headline
from .report.outsiders import shown_verdict
from .report.results_json import dumps
from .report.verdict_json import from_json
from .report.whole_run import moved_line
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

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._write(Results(head=self._begun))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        """Write behind everybody who may still change the exit status."""
        ended = yield
        self._write(self._results(int(session.exitstatus)))
        return ended

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
            tests={
                test: record_of(report, self._config.rootpath)
                for test, report in found.reports.items()
            },
        )

    def _notes(self, found: Assessment) -> Iterator[str]:
        moved = found.moved_with_the_environment
        if moved:
            yield moved_line(moved, repeated_options(self._settings)).text
        if found.suite:
            yield suite_line(found.suite).text

    def _write(self, results: Results) -> None:
        try:
            write_ignored(self._settings.artefacts / FILE, dumps(results))
        except GpuperfError as error:
            announce(self._config, f"gpuperf: {error}")


def record_of(report: Report, root: Path) -> Record:
    """Return *report* for people elsewhere: no path of this machine stands in it."""
    verdicts = [shown_verdict(from_json(text)) for text in report.verdicts]
    first, *_ = report.text.splitlines() or [""]
    return Record(
        ending=report.ending,
        outcome=worst_of(verdict.outcome for verdict in verdicts),
        headline=shown_headline(report.headline or first, root, Path.home()),
        verdicts=tuple(encode_briefly(verdict) for verdict in verdicts),
    )
