"""Runs pytest on the tests of one run inside a measuring process."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import Distribution
from typing import Any, Final, Protocol

import pytest

from ..devices import default_kind, open_device
from ..devices.base import Device
from ..devices.cuda.memory import out_of_memory_summary
from ..devices.machine import seeing, slots_of
from ..devices.process_time import HostClock
from ..devices.simulated import NeedsGpuError
from ..errors import ErrorId, GpuperfError, RunError
from ..files import scratch_folder
from ..model.codec import decode, encode
from ..model.environment import DeviceKind
from ..model.run import Ending, Stop, TestResult
from ..report.secrets import masked, secrets_of
from ..runner.fork_server import send_progress, send_progress_seldom
from ..runner.request import RunRequest
from . import draws
from .fixture import Measurer, measurer_key
from .items import asks, keep_budgets, recorded
from .measurer import Measuring


CHILD_OPTIONS: Final = (
    "-q",
    "-o",
    "addopts=",
    *(f"-pno:{name}" for name in ("lfplugin", "nfplugin", "stepwiseplugin")),
    "-pno:rerunfailures",
)
"""A child reports to its parent alone: it leaves no trace in the cache that
``--lf``, ``--nf`` and ``--stepwise`` read, and does not rerun on its own."""


TRACE_VARIABLE: Final = "TORCH_TRACE"
COMPILER_TRACE: Final = "torch.__trace"
"""Asks torch for a structured trace of its compilations, and the logger that writes it."""


def warm_pytest() -> None:
    """Import pytest's plugins and the phases here, in the server, not in each child."""
    importlib.import_module("pytest_gpuperf.measure.phases")
    installed()
    # pytest loads its plugins only when it runs, so an empty folder is collected.
    with scratch_folder() as folder:
        pytest.main(
            ["--collect-only", f"--rootdir={folder}", *CHILD_OPTIONS, folder],
            plugins=[WithoutSummary()],
        )
    _ask_git_nothing()


def _ask_git_nothing() -> None:
    """Keep pytest-benchmark from asking git for a name at each start of pytest.

    The name is for a file that no measuring process writes, and four questions, one of
    them for every changed file, take 25 ms in a small repository.
    """
    benchmark = sys.modules.get("pytest_benchmark.plugin")
    if hasattr(benchmark, "get_tag"):
        benchmark.get_tag = lambda: "measured"  # type: ignore[union-attr]


class WithoutSummary:
    """Keeps plugins from summing up a run: nobody reads it, and Hypothesis is imported."""

    # Outermost: the tests and their fixtures have ended. What cannot be collected raises,
    # and is shown: what the controlling process reports of this one ends with it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(
        self, session: pytest.Session
    ) -> Generator[None, object, object]:
        looped = yield
        plugins = session.config.pluginmanager
        reporter = plugins.get_plugin("terminalreporter")
        if reporter is not None:  # it is with `-p no:terminal`
            plugins.unregister(reporter)
        return looped


def describe(request: Mapping[str, Any]) -> dict[str, Any]:
    """Name the environment and where to measure; a usage error is an answer too."""
    try:
        kind = DeviceKind(request["kind"]) if request["kind"] else default_kind()
        device = open_device(kind, request["script"])
        slots = [encode(slot) for slot in slots_of(kind, request["script"])]
        return {"environment": encode(device.environment()), "slots": slots}
    except GpuperfError as error:
        return {"error": str(error)}


def measure(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run pytest on the tests of one run and return a result a test."""
    request = decode(RunRequest, raw)
    enter(request)
    results = run_tests(request, measuring_for(request, follow=_send_progress))
    return [encode(result) for result in results]


def _send_progress(call: str, *doing: str) -> None:
    """Say which call is measured next, and from time to time in which phase it is."""
    (send_progress_seldom if doing else send_progress)(call, *doing)


def enter(request: RunRequest) -> None:
    """Set the environment, folder and path that the project's tests expect."""
    if request.visible is not None:
        # CUDA reads them when it is first used.
        os.environ.update(seeing(request.visible, os.environ))
    os.chdir(request.project.directory)
    sys.path[:] = request.project.search_path
    sys.argv = ["pytest", *request.tests]


def measuring_for(
    request: RunRequest,
    watch: Callable[[Device], Device] = lambda device: device,
    *,
    follow: Callable[..., object] = lambda *_: None,
) -> Measuring:
    """Open the device, and measure on the one that *watch* makes of it."""
    return Measuring(watch(opened(request)), request, follow)


def opened(request: RunRequest) -> Device:
    """Open the device of *request*: it is entered before collection, and never left."""
    settings = request.settings
    device = open_device(
        request.device,
        settings.script,
        request.number,
        root=str(request.project.rootdir),
        simulated_gib=settings.simulated_gib,
    )
    device.enter()
    return device


def run_tests(
    request: RunRequest,
    keeper: Keeper,
    *,
    failed: Callable[[TestResult], None] = lambda _: None,
) -> Sequence[TestResult]:
    """Run pytest with *keeper* behind the fixture; raise ``RunError`` if no test ran.

    *failed* is called when a test has failed, before it is torn down.
    """
    child = MeasuringProcess(request, keeper, failed)
    known = KnownPackages(installed())
    # Modules draw when they are imported, while tests are collected.
    draws.begin(draws.seed_of("", request.number, request.settings.seed))
    draws.watch()
    with known:
        code = pytest.main(
            [*CHILD_OPTIONS, *request.project.arguments, *request.tests],
            plugins=[child, known, WithoutSummary()],
        )
    results = child.results()
    if not results:
        msg = f"pytest exited with {int(code)} there and ran no test"
        raise RunError(msg, ErrorId.GP606)
    return results


class Keeper(Measurer, Protocol):
    """The object behind the fixture, which keeps what it measured by test."""

    def added_to(self, result: TestResult, test: str) -> TestResult:
        """Return *result* with what was measured of *test*."""


class MeasuringProcess:
    """The plugin of a measuring process, which measures and keeps the reports."""

    def __init__(
        self,
        request: RunRequest,
        keeper: Keeper,
        failed: Callable[[TestResult], None],
    ) -> None:
        self._request = request
        self._failed = failed
        self._measuring = keeper
        self._results: dict[str, TestResult] = {}
        self._started: dict[str, int] = {}
        self._running = ""
        self._is_over = False

    def results(self) -> Sequence[TestResult]:
        return list(self._results.values())

    # First: our own plugin's hook finds the measurer and so knows that this process
    # must not start a run of its own. The options are set before other plugins read
    # them.
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[measurer_key] = self._measuring
        _silence_the_compiler()
        for name, value in self._request.project.options.items():
            setattr(config.option, name, value)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started[nodeid] = HostClock.wall_ns()
        self._running, self._is_over = nodeid, False

    # First: before fixtures draw, and before other plugins and the user seed.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        request = self._request
        seed = request.settings.seed
        draws.begin(draws.seed_of(item.nodeid, request.number, seed))
        draws.watch_clocks()
        keep_budgets(item)

    # First: a fixture that ends pytest while it is torn down must not undo a call that
    # has ended.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        draws.watch_no_clocks()
        self._is_over = True

    # The outermost wrapper: it sees the report as all other plugins have left it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        raised = None if call.excinfo is None else call.excinfo.value
        if raised is not None:
            _add_memory_summary(item, call.when, raised)
        report = yield
        # What a unittest.TestCase raised is known only now, and a skip is pytest's own.
        error = None if call.excinfo is None else call.excinfo.value
        # An unexpected pass is for the controlling process to see: a verdict is due.
        ended = TestResult(test=item.nodeid, ending=Ending.PASSED)
        if error is not None:
            needs_gpu = any(isinstance(e, NeedsGpuError) for e in (raised, error))
            ended = replace(_ended(report), needs_gpu=needs_gpu)
        self._keep(item, report, ended)
        # Not the report of this phase: an earlier one may have failed, and other ranks
        # wait for this one until they are notified.
        kept = self._results[item.nodeid]
        if kept.ending is Ending.FAILED:
            self._failed(kept)
        return report

    def _keep(
        self, item: pytest.Item, report: pytest.TestReport, ended: TestResult
    ) -> None:
        known = self._results.get(item.nodeid)
        # There is a report per phase. The first that did not pass is the test's ending.
        if known and known.ending is not Ending.PASSED:
            ended = known
        self._results[item.nodeid] = replace(
            self._measuring.added_to(ended, item.nodeid),
            sections=tuple((title, _unsecret(t)) for title, t in report.sections),
            properties=recorded(item),
            asked=asks(item),
            seconds=(HostClock.wall_ns() - self._started[item.nodeid]) / 1e9,
        )

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[Any]) -> None:
        """Keep what ended pytest: no report is made of the phase that it hit."""
        test = self._running
        if not test:
            return
        stop = _stop(excinfo.value)
        text = f"the test ended pytest before it had ended itself: {stop.reason}"
        cut_off = TestResult(test=test, ending=Ending.FAILED, text=text)
        known = self._results.get(test)
        ended = known if known and self._is_over else cut_off
        self._results[test] = replace(
            self._measuring.added_to(ended, test),
            stop=stop,
            seconds=(HostClock.wall_ns() - self._started[test]) / 1e9,
        )


def _silence_the_compiler() -> None:
    """Keep pytest from listening to torch's trace of compilations, if nobody asked for it.

    It listens to each logger that does not propagate, and torch writes hundreds of lines
    per compilation to one with a listener: that takes time, and pytest would show them.
    """
    if TRACE_VARIABLE not in os.environ:
        trace = logging.getLogger(COMPILER_TRACE)
        trace.propagate = True
        # Torch's own: it only waits for the first line to find that nobody asked.
        trace.handlers.clear()


def _stop(error: BaseException) -> Stop:
    if isinstance(error, pytest.exit.Exception):
        reason = f"pytest.exit({str(error.msg)!r})"
        return Stop(reason=reason, status=error.returncode)
    return Stop(reason=type(error).__name__)


def _add_memory_summary(item: pytest.Item, when: str, error: BaseException) -> None:
    summary = out_of_memory_summary(error)
    if summary is not None:
        item.add_report_section(when, "CUDA memory", summary)


def _ended(report: pytest.TestReport) -> TestResult:
    result = TestResult(test=report.nodeid, ending=Ending.FAILED)
    if hasattr(report, "wasxfail"):
        return replace(result, ending=Ending.XFAILED, text=_unsecret(report.wasxfail))
    if report.skipped:
        reason = _unsecret(_skip_reason(report))
        return replace(result, ending=Ending.SKIPPED, text=reason)
    return replace(
        result,
        text=_unsecret(report.longreprtext),
        headline=_unsecret(_headline(report)),
    )


def _unsecret(text: str) -> str:
    """Mask secrets, also those that the test itself has put into the environment."""
    return masked(text, secrets_of(os.environ))


def _headline(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    first, *_ = str(getattr(crash, "message", "")).splitlines() or [""]
    return first


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext


# The installed packages, read once in the server and not by the pytest of each run.
#
# To find its plugins pytest asks each package of the environment twice: a quarter of what
# its start costs. Nothing is installed or removed between two runs of one session.

PLUGINS: Final = "pytest11"
"""The group of the entry points that are pytest's plugins."""


class Package:
    """A *found* package; what pytest asks for is read once."""

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self.entry_points = found.entry_points
        # Of others nobody asks, and the list of torch's files is long.
        if any(point.group == PLUGINS for point in self.entry_points):
            self.files = found.files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


class Installed:
    """The packages on *search_path*, as they were when this was made."""

    def __init__(self, search_path: Sequence[str]) -> None:
        self._path = tuple(search_path)
        self._packages = [Package(d) for d in Distribution.discover(path=[*self._path])]

    def on(self, search_path: Sequence[str]) -> Iterator[Distribution | Package]:
        """Yield the packages on *search_path*; what is not known of it is read now."""
        known = [place for place in search_path if place in self._path]
        if (*known,) != self._path:
            yield from Distribution.discover(path=[*search_path])
            return
        # A project puts its own folders first, and the first package of a name counts.
        more = [place for place in search_path if place not in self._path]
        yield from Distribution.discover(path=more)
        yield from self._packages


@lru_cache(maxsize=1)
def installed() -> Installed:
    """Return what is installed where this process looked for modules when first asked."""
    return Installed(sys.path)


class KnownPackages:
    """A plugin of pytest that answers it what is installed, till a conftest is loaded."""

    def __init__(self, packages: Installed) -> None:
        self._packages = packages
        self._asks = importlib.metadata.distributions

    def __enter__(self) -> None:
        def known(**context: Any) -> Iterator[Any]:
            if context:
                return iter(self._asks(**context))
            return self._packages.on(sys.path)

        importlib.metadata.distributions = known

    def __exit__(self, *_: object) -> None:
        importlib.metadata.distributions = self._asks

    # First: a project finds Python's own function.
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        self.__exit__()
