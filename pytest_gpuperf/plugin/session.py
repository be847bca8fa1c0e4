"""The pytest hooks of one enabled run in the controlling process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ..baselines.refresh import Seen, owns_one, unmeasured
from ..baselines.store import stored_keys
from ..errors import GpuperfError
from ..files import read_regular
from ..model.environment import DeviceKind
from ..model.run import Report, Unseen
from ..runner.evaluation import RunEvaluator, RunResult
from ..runner.fork_server import EarlyServer
from ..runner.request import Planned, Project
from ..runner.rounds import Rounds
from ..settings import Settings, is_ci
from ..visible import visible_text
from ..worker.fixture import refused_in
from ..worker.items import is_measured, node_id, place_of, plan_of
from .parse_settings import (
    arguments_for_child,
    deselects,
    narrowed_by,
    options_for_child,
)
from .reported_items import (
    ReportedItem,
    ReportLog,
    SkipsInChild,
    failing,
    shorten_headlines,
)
from .terminal import (
    LiveLine,
    LogLines,
    write_nothing,
    write_rest,
    write_summary,
    write_unlooked,
)


# SIGTERM, with which a CI ends what takes too long, ends a run as Ctrl-C does.


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise ``Terminated``, once, unless somebody else handles it."""
    # Python sets signal handlers in the main thread only.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is kept now is kept whole
    msg = "SIGTERM: another process ended the run"
    raise Terminated(msg)


TAKES_THE_FIXTURE: Final = re.compile(
    rb"^\s*(async )?def \w+\([^)]*\bgpuperf\b", re.MULTILINE
)


def has_a_measured_test(module: Path) -> bool:
    """Whether the text of *module* has a function that takes the fixture."""
    try:
        return TAKES_THE_FIXTURE.search(read_regular(module)) is not None
    except OSError:
        return False


FINISHED_CODES: Final = frozenset(
    {
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    }
)
"""Exit statuses after which every selected test has had its turn."""


UNCUT: Final = 2
"""Pytest's verbosity with ``-vv``, from which on it cuts no line."""


def project_of(config: pytest.Config) -> Project:
    """Return where this run's tests are and how a child finds them."""
    return Project(
        rootdir=config.rootpath,
        directory=str(config.invocation_params.dir),
        search_path=tuple(sys.path),
        arguments=tuple(arguments_for_child(config)),
        options=options_for_child(config),
    )


def replace_measured(
    session: pytest.Session, find: Callable[[str], Report | None]
) -> None:
    """Replace each measured item by one that reports."""
    session.items[:] = [
        ReportedItem.standing_for(item, find) if is_measured(item) else item
        for item in session.items
    ]
    session.config.pluginmanager.register(SkipsInChild(), "gpuperf-skips")
    session.config.pluginmanager.register(TimesOfRuns(find), "gpuperf-times")


class TimesOfRuns(NamedTuple):
    """Gives each measured test the time of its runs: JUnit, ``--durations``."""

    find: Callable[[str], Report | None]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        made = yield
        report = self.find(item.nodeid)
        if report is not None and call.when == "call":
            made.duration = report.seconds
        return made


LINE_SECONDS: Final = 10.0
"""Between two lines of progress in a log."""

VERBOSE_SECONDS: Final = 2.0
"""The same with ``-v``."""


def live_line(
    config: pytest.Config, environ: Mapping[str, str]
) -> LiveLine | LogLines | None:
    """Return a line to write progress on, or lines of a log; none with ``-q``."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    verbosity = config.get_verbosity()
    if reporter is None or verbosity < 0:
        return None
    # A log of CI keeps every carriage return as one endless line.
    is_dumb = environ.get("TERM") == "dumb" or bool(environ.get("CI"))
    if sys.stdout.isatty() and not is_dumb:
        return LiveLine(_write, terminal_columns)
    seconds = VERBOSE_SECONDS if verbosity else LINE_SECONDS
    return LogLines(partial(_write_line, config), seconds)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns


ANNOUNCED: Final = pytest.StashKey[set[str]]()
"""What was announced in this run."""


def announce(config: pytest.Config, text: str) -> None:
    """Print a message to the user once: several files may fail for one reason."""
    announced = config.stash.setdefault(ANNOUNCED, set())
    if text not in announced:
        announced.add(text)
        _write_line(config, text)


def _write_line(config: pytest.Config, text: str) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(visible_text(text))


class GpuperfSession:
    """Measures after everything has been collected and before the first test runs."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        early: EarlyServer,
    ) -> None:
        """*early* imports torch while the tests are collected."""
        self._config = config
        self._settings = settings
        self._heard = ReportLog()
        self.params: Mapping[str, Mapping[str, object]] = {}
        self._run_result: RunResult | None = None
        self._live: LiveLine | LogLines | None = None
        self._early = early
        self._is_stopped = False

    # pytest imports the file next, and that often imports torch: this is the time in
    # which the server does so too.
    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path) -> None:
        if not deselects(self._config) and has_a_measured_test(module_path):
            self._early.start()

    # Last: the mark by which a measured test is known is added in this hook.
    @pytest.hookimpl(trylast=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if not deselects(self._config) and is_measured(item):
            self._early.start()

    # First, and with no result: pytest's own loop follows and runs the items as they
    # are then.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if (
            session.testsfailed
            and not session.config.option.continue_on_collection_errors
        ):
            return
        plan = plan_of(session.items)
        if self._has_work(plan, map(node_id, session.items)):
            # The devices are free again before the first ordinary test, which may use
            # them.
            with closing(self._evaluator()) as evaluator:
                self._evaluate(evaluator, plan)
            replace_measured(session, self._find)

    def _evaluator(self) -> RunEvaluator:
        self._live = live_line(self._config, os.environ)
        try:
            rounds = Rounds(
                self._settings,
                project_of(self._config),
                self._announce,
                self._live.show if self._live else None,
                maxfail=self._config.getoption("maxfail", 0) or 0,
                early=self._early,
            )
            return RunEvaluator(rounds)
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None

    def _evaluate(self, evaluator: RunEvaluator, plan: Sequence[Planned]) -> None:
        try:
            seen = self._config.stash[SELECTION].seen
            with ended_by_sigterm():
                self._run_result = evaluator.evaluate(plan, seen)
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None
        except KeyboardInterrupt:
            # An interrupted refresh has stored some tests; the summary says which.
            self._run_result = evaluator.interrupted
            raise
        finally:
            self._erase()
        self.params = {planned.test: planned.params for planned in plan}

    @property
    def run_result(self) -> RunResult | None:
        """What came of the planned tests, once they were measured."""
        return self._run_result

    def _find(self, test: str) -> Report | None:
        return self._run_result.all_reports.get(test) if self._run_result else None

    def _announce(self, text: str) -> None:
        self._erase()
        announce(self._config, text)

    def _erase(self) -> None:
        if self._live is not None:
            self._live.erase()

    def _has_work(self, plan: Sequence[Planned], tests: Iterable[str]) -> bool:
        """Whether a test is to be measured, or one of *tests* has a baseline without it."""
        stored = stored_keys(self._settings.baselines)
        knows_all = not self._config.stash[SELECTION].seen.obstacle
        if plan or (self._settings.prunes and stored and knows_all):
            return True
        return owns_one(set(tests), stored)

    # The outermost wrapper: code before the yield runs first, code behind it last.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        return (yield from self._finish(session))

    def _finish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Set the exit status before other hooks read it, and again after them."""
        self._early.close()
        self._is_stopped = bool(session.shouldfail)
        red = self._red()
        _redden(session, red)
        try:
            ended = yield
        # pytest takes the status of such an exit over that of the session.
        except pytest.exit.Exception as stop:
            if red is not None and not stop.returncode:
                stop.returncode = int(red)
            raise
        _redden(session, red)
        return ended

    def _red(self) -> pytest.ExitCode | None:
        """Return the status that replaces a green one; ``None`` if green is right."""
        has_failed = self._heard.has_failed(self._failing)
        if has_failed or self.unseen.fails or self._fails_as_a_whole():
            return pytest.ExitCode.TESTS_FAILED
        return None

    def _fails_as_a_whole(self) -> bool:
        """Whether the run fails as a whole, even if no single test does."""
        found = self._run_result
        if found is None:
            return False
        moved = found.moved_with_the_environment and not found.warns
        return bool(moved or found.drifts or found.unmeasured)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._heard.note(report)

    @property
    def _failing(self) -> set[str]:
        """Tests that must be reported as failed: by their reports, or as refused."""
        reports = self.run_result.reports if self.run_result else {}
        return failing(reports) | refused_in(self._config)

    @property
    def unseen(self) -> Unseen:
        """What the verdicts do not cover."""
        found = self.run_result
        verdicts = found.verdicts if found else ()
        return Unseen(
            lost=tuple(sorted(self._lost)),
            silenced=tuple(sorted(self._heard.silenced(self._failing))),
            unmeasured=unmeasured(
                found.stored if found else (),
                self._heard.passed,
                {verdict.test for verdict in verdicts},
            ),
            is_strict=not self._settings.warns
            and (is_ci(os.environ) or self._settings.strict),
        )

    @property
    def _lost(self) -> set[str]:
        """Tests that were selected and for which pytest never reported a verdict.

        If pytest stopped at a failure, as it was asked to, the table has the rest.
        """
        selected = set(self._config.stash[SELECTION].selected)
        found = self._run_result
        if found is None:
            return selected
        stopped = found.reports if self._is_stopped else ()
        return selected - set(self._heard.tests).union(found.unmeasured, stopped)

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        finished = exitstatus in FINISHED_CODES
        unseen = self.unseen if finished else Unseen()
        self._shorten(terminalreporter)
        if self._run_result is not None and self._run_result.reports:
            write_summary(terminalreporter, self._run_result, unseen)
            return
        selection = self._config.stash[SELECTION]
        why = selection.nothing_because if finished else "the run ended early"
        if self._run_result is not None:
            write_rest(terminalreporter, self._run_result, unseen)
        elif self._settings.device in {None, DeviceKind.SIMULATED}:
            write_unlooked(terminalreporter, selection.skipped)
        write_nothing(terminalreporter, unseen, why)

    def _shorten(self, reporter: Any) -> None:
        """Shorten headlines to the terminal; like pytest, not in CI or with ``-vv``."""
        is_cut = not (os.environ.get("CI") or os.environ.get("BUILD_NUMBER"))
        if is_cut and self._config.get_verbosity() < UNCUT:
            shorten_headlines(reporter.stats.get("failed", ()), terminal_columns())


def _redden(session: pytest.Session, red: pytest.ExitCode | None) -> None:
    if red is not None and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = red


# Which measured tests were collected before any was deselected.


class SelectionWatch:
    """Remembers the measured tests that were collected, and those that were left.

    ``others`` are the tests that are not to be measured.
    ``files`` are those that were collected whole, ``skipped`` those that skipped
    themselves, ``where`` is the line of each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._narrowed = narrowed_by(config)
        self.collected: tuple[str, ...] = ()
        self.others: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.files: tuple[str, ...] = ()
        self.skipped: tuple[str, ...] = ()
        self.where: Mapping[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # Classes are collected too, and only a whole file shows that a test in it is
        # gone.
        if "::" in report.nodeid:
            return
        if report.passed:
            self.files = (*self.files, report.nodeid)
        elif report.skipped:
            self.skipped = (*self.skipped, report.nodeid)

    # pytest deselects in plain implementations of this hook. The outermost wrapper sees
    # the items before all of them.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: Sequence[pytest.Item]
    ) -> Generator[None, None, None]:
        """Look before ``-k``, ``-m`` or a plugin takes the tests of other shards away."""
        self.collected = _measured(items)
        self.others = tuple(node_id(item) for item in items if not is_measured(item))
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = _measured(session.items)
        self.where = {
            node_id(item): place_of(item) for item in session.items if is_measured(item)
        }

    @property
    def seen(self) -> Seen:
        """What this run knows about existing tests."""
        return Seen(
            tests=self.collected,
            others=self.others,
            files=frozenset(self.files),
            skipped=self.skipped,
            obstacle=self._obstacle(),
        )

    @property
    def nothing_because(self) -> str:
        """Say why there was nothing to measure."""
        taking, others = len(self.collected), len(self.others)
        if taking:
            takes = (
                "the 1 test that takes"
                if taking == 1
                else f"all {taking} tests that take"
            )
            was = "was" if taking == 1 else "were"
            return f"{takes} the gpuperf fixture {was} deselected"
        if others:
            none = "the 1 test collected does not take"
            none = (
                none if others == 1 else f"none of the {others} tests collected takes"
            )
            return f"{none} the gpuperf fixture"
        return "no test was collected"

    def _obstacle(self) -> str:
        """Say why not every test was looked at; nothing if it was."""
        if self._narrowed:
            return f"{self._narrowed} selects some of the tests"
        left_out = len(set(self.collected).difference(self.selected))
        tests = "1 test was" if left_out == 1 else f"{left_out} tests were"
        return f"{tests} deselected" if left_out else ""


SELECTION: Final[pytest.StashKey[SelectionWatch]] = pytest.StashKey()


def _measured(items: Sequence[pytest.Item]) -> tuple[str, ...]:
    """Return the names that their baselines have, without repetitions."""
    return tuple(dict.fromkeys(node_id(item) for item in items if is_measured(item)))
