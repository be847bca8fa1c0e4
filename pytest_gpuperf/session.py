"""The pytest hooks of one enabled run in the controlling process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from .assessed import Assessment
from .assessment import Assessor
from .beside import use_beside_others
from .errors import GpuperfError
from .inherited import arguments_for_child
from .inherited import options_for_child
from .live_line import LiveLine
from .marks import ranks_of
from .model.environment import DeviceKind
from .model.run import Report
from .parametrized import params_of
from .plan import Planned
from .plan import Project
from .referring import Referee
from .reported import ReportedItem
from .reported import SkipsInChild
from .reported import is_measured
from .reported import node_id
from .selection import SELECTION
from .selection import place_of
from .settings import Settings
from .summary import write_lost
from .summary import write_summary
from .summary import write_unlooked


def project_of(config: pytest.Config) -> Project:
    """Where this run's tests are and how a child must be started to find them."""
    return Project(
        rootdir=config.rootpath,
        directory=str(config.invocation_params.dir),
        search_path=tuple(sys.path),
        arguments=arguments_for_child(config),
        options=options_for_child(config),
    )


def plan_of(items: Sequence[pytest.Item]) -> list[Planned]:
    """The measured tests among the selected items, each once, in their order."""
    planned = {node_id(item): item for item in items if is_measured(item)}
    return [
        Planned(
            test=test,
            argument=f"{item.path}::{test.partition('::')[2]}",
            module=str(item.path),
            where=place_of(item),
            ranks=ranks_of(item),
            params=params_of(item),
        )
        for test, item in planned.items()
    ]


def replace_measured(
    session: pytest.Session, find: Callable[[str], Report | None]
) -> None:
    """Put a reporting item in the place of each measured one."""
    session.items[:] = [
        ReportedItem.standing_for(item, find) if is_measured(item) else item
        for item in session.items
    ]
    session.config.pluginmanager.register(SkipsInChild(), "gpuperf-skips")


def live_line(config: pytest.Config, environ: Mapping[str, str]) -> LiveLine | None:
    """Return a line to write progress on, where a person looks and did not ask for less."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    is_dumb = environ.get("TERM") == "dumb" or bool(environ.get("CI"))
    if reporter is None or config.get_verbosity() < 0 or is_dumb:
        return None
    return LiveLine(_write, terminal_columns) if sys.stdout.isatty() else None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns


def announce(config: pytest.Config, text: str) -> None:
    """Tell a person what goes on, in a line of its own."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(text)


class GpuperfSession:
    """Measures after everything has been collected and before the first test runs."""

    def __init__(
        self, config: pytest.Config, settings: Settings, referee: Referee
    ) -> None:
        self._config = config
        self._settings = settings
        self._referee = referee
        self._assessment: Assessment | None = None
        self._live: LiveLine | None = None
        self.params: Mapping[str, Mapping[str, object]] = {}
        self._reported: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if (
            session.testsfailed
            and not session.config.option.continue_on_collection_errors
        ):
            return
        plan = plan_of(session.items)
        if plan:
            with closing(self._assessor()) as assessor:
                self._assess(assessor, plan)
                names = [seat.lock for seat in assessor.seats if seat.lock]
            use_beside_others(self._config, names, self._settings)
            replace_measured(session, self._find)

    def _assessor(self) -> Assessor:
        self._live = live_line(self._config, os.environ)
        try:
            return Assessor(
                self._settings,
                project_of(self._config),
                self._announce,
                self._referee,
                self._live.show if self._live else None,
            )
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None

    def _assess(self, assessor: Assessor, plan: Sequence[Planned]) -> None:
        try:
            seen = self._config.stash[SELECTION].seen
            self._assessment = assessor.assess(plan, seen)
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None
        finally:
            self._erase()
        self.params = {planned.test: planned.params for planned in plan}

    @property
    def assessment(self) -> Assessment | None:
        """What came of the planned tests, once they were measured."""
        return self._assessment

    def _find(self, test: str) -> Report | None:
        return self._assessment.reports.get(test) if self._assessment else None

    def _announce(self, text: str) -> None:
        self._erase()
        announce(self._config, text)

    def _erase(self) -> None:
        if self._live is not None:
            self._live.erase()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A skip before the call is none: that test has a verdict which nobody heard."""
        if report.when == "call" or report.failed or hasattr(report, "wasxfail"):
            self._reported.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        is_green = exitstatus == pytest.ExitCode.OK
        if is_green and (self.lost or self._fails_as_a_whole()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _fails_as_a_whole(self) -> bool:
        """Whether the run fails even where each of its tests may do what it did."""
        found = self._assessment
        return bool(found and (found.moved_with_the_environment or found.drifts))

    @property
    def lost(self) -> list[str]:
        """Tests that were selected and whose verdict pytest never reported."""
        selected = set(self._config.stash[SELECTION].selected)
        return sorted(selected - (self._reported if self._assessment else set()))

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        finished = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
        lost = self.lost if finished else []
        if self._assessment is not None:
            write_summary(terminalreporter, self._assessment, lost)
        elif lost:
            write_lost(terminalreporter, lost)
        elif self._settings.device in {None, DeviceKind.PRETEND}:
            write_unlooked(terminalreporter, self._config.stash[SELECTION].skipped)
