"""The pytest plugin: hooks and fixtures, nothing else.

Every pytest run imports it if the package is installed, so it imports the rest late.
Commands import it before pytest does, which would warn of that: PYTEST_DONT_REWRITE.

Begin with:

- ``options.Option``: options and ini keys
- ``session.GpuperfSession``: a run with ``--gpuperf``
- ``reported_items.ReportedItem``: a measured test as pytest reports it
- ``terminal.write_summary``: what the terminal shows
- ``watch.WatchedRun``: ordinary tests with ``--gpuperf-watch``
- ``outputs.ResultsFile``: ``results.json`` and the rest of ``.gpuperf``
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from .. import marks
from ..errors import GpuperfError
from . import options
from .mark_checks import MarkInspector


if TYPE_CHECKING:
    from ..runner.fork_server import EarlyServer
    from ..settings import Settings
    from ..worker.fixture import Gpuperf


def pytest_addoption(parser: pytest.Parser) -> None:
    options.register(parser)


# First: conftest files are loaded in this hook, and one may ask torch for a GPU.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """Watch before conftest files look for a GPU, and silence ranks in time."""
    if not {"-h", "--help"}.intersection(args):  # or the help would show them
        options.register_retired_keys(parser)
    if options.is_watched(early_config) and options.runs_tests_here(early_config):
        from .watch import watch

        watch(early_config)
    if options.will_follow(early_config):
        from .torchrun import be_quiet

        be_quiet(early_config)


def pytest_configure(config: pytest.Config) -> None:
    for mark in marks.REGISTERED:
        config.addinivalue_line("markers", mark)
    config.pluginmanager.register(MarkInspector(), "gpuperf-marks")
    _refuse_idle_option(config)
    if options.is_watched(config):
        _watch(config)
    if options.is_enabled(config):
        _enable(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if options.is_idle_device(config):
        terminalreporter.write_line(
            "gpuperf: nothing was measured: --gpuperf-device has no effect without "
            "--gpuperf",
            yellow=True,
        )


def _refuse_idle_option(config: pytest.Config) -> None:
    if options.updates_nothing(config):
        from ..errors import ErrorId, UsageError

        flag = "--gpuperf-update"
        msg = f"{flag} does nothing without --gpuperf: add it, or leave {flag} out"
        raise pytest.UsageError(str(UsageError(msg, ErrorId.GP114)))


def _watch(config: pytest.Config) -> None:
    from ..errors import ErrorId, UsageError
    from .watch import enable

    try:
        if options.is_enabled(config):
            msg = (
                "--gpuperf-watch and --gpuperf were both given; expected one: measure in "
                "one run and watch in another, with -o gpuperf=false if the ini file sets "
                "it"
            )
            raise UsageError(msg, ErrorId.GP116)
        enable(config)
    except GpuperfError as error:
        raise pytest.UsageError(str(error)) from None


def _enable(config: pytest.Config) -> None:
    from ..worker.fixture import measurer_key
    from .parse_settings import settings_from
    from .reported_items import PaintsFailures, WarnsOfFailures

    # The ini key `gpuperf` is set in a measuring process too. It must not measure
    # again.
    if measurer_key in config.stash:  # a measuring process
        return
    # Before the settings are read: a wrong option must not leave an older green result.
    _forget_older_run(config)
    try:
        settings = settings_from(config, options.environment())
        plugin = _enabled_plugin(config, settings)
        # Registered before the file of results: the later one of two outermost wrappers
        # is the outer one, so the file has the exit status that the run has set.
        config.pluginmanager.register(plugin, "gpuperf-run")
        config.pluginmanager.register(PaintsFailures(), "gpuperf-colours")
        config.pluginmanager.register(WarnsOfFailures(), "gpuperf-warnings")
        _record(config, settings, plugin)
    except GpuperfError as error:
        raise pytest.UsageError(str(error)) from None


def _forget_older_run(config: pytest.Config) -> None:
    """Remove the results of an older run, so that a failed start leaves none."""
    from ..files import refuse_link
    from ..model.run import RESULTS_NAME
    from ..settings import ARTEFACTS

    if not hasattr(config, "workerinput"):
        with suppress(OSError):
            refuse_link(config.rootpath / ARTEFACTS)
            (config.rootpath / ARTEFACTS / RESULTS_NAME).unlink(missing_ok=True)


def _record(config: pytest.Config, settings: Settings, plugin: Any) -> None:
    """Register what records the selection, writes the results and hands them on."""
    from .session import SELECTION, SelectionWatch

    config.stash[SELECTION] = selection = SelectionWatch(config)
    config.pluginmanager.register(selection, "gpuperf-selection")
    reports = settings.launch is None or settings.launch.rank == 0
    if reports and not hasattr(config, "workerinput"):
        from .outputs import ResultsFile

        results = ResultsFile(config, settings, plugin)
        config.pluginmanager.register(results, "gpuperf-results")
        _feed_benchmark(config, settings, plugin)


def _feed_benchmark(config: pytest.Config, settings: Settings, plugin: Any) -> None:
    """Hand what is measured to pytest-benchmark, if asked."""
    if not settings.benchmark:
        return
    from .outputs import BenchmarkFeed

    feed = BenchmarkFeed(config, plugin)
    config.pluginmanager.register(feed, "gpuperf-benchmark")


def _enabled_plugin(config: pytest.Config, settings: Settings) -> object:
    # The order decides: a worker of pytest-xdist has all options of its controller, and
    # only the controller measures.
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        from .xdist import XdistWorker

        return XdistWorker(workerinput, settings)
    if settings.launch is not None and settings.launch.rank:
        from .torchrun import Follower

        return Follower(config, settings, settings.launch)
    early = _early_server(config, settings)
    if config.getoption("dist", "no") != "no":
        from .xdist import XdistController

        return XdistController(config, settings, early)
    from .session import GpuperfSession

    if settings.launch is not None:
        from .torchrun import Leader

        config.pluginmanager.register(Leader(settings.launch), "gpuperf-leader")
    return GpuperfSession(config, settings, early)


def _early_server(config: pytest.Config, settings: Settings) -> EarlyServer:
    """Return the server of measuring processes, which ends with this run at the latest."""
    from ..runner.fork_server import EarlyServer

    early = EarlyServer(settings.device)
    config.add_cleanup(early.close)
    return early


# First: pytest takes the first result, and pytest-xdist has an implementation as well.
@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: a worker a GPU, as workers that share one only wait for it."""
    if not options.is_enabled(config):
        return None
    from .xdist import auto_workers

    return auto_workers(config, options.environment())


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, object]
) -> None:
    """Tell runs on different GPUs apart, with and without ``--gpuperf``."""
    if options.is_asked(config, "gpuperf_benchmark"):
        from ..devices.cuda.nvml import machine_gpus

        machine_info["gpu"] = machine_gpus()


def pytest_itemcollected(item: pytest.Item) -> None:
    if "gpuperf" in getattr(item, "fixturenames", ()):
        # A mark makes `-m gpuperf` select these tests.
        item.add_marker(marks.AUTO_MARK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make a test that asks for ranks a single rank if nobody starts more."""
    if item.get_closest_marker(marks.RANKS_MARK) is None:
        return (yield)
    from ..distributed.group import alone

    with alone():
        return (yield)


@pytest.fixture
def gpuperf(request: pytest.FixtureRequest) -> Gpuperf:
    """Measure and judge a training step: ``gpuperf(step)``."""
    from ..worker.fixture import Gpuperf, measurer_of

    enabled = options.is_enabled(request.config)
    measurer = measurer_of(request.config, is_enabled=enabled)
    return Gpuperf(measurer, request.node)


@pytest.fixture(scope="session")
def gpuperf_device(request: pytest.FixtureRequest) -> str:
    """Name the device for models and data of wider scopes: ``"cuda"`` or ``"cpu"``."""
    from ..worker.fixture import measurer_of

    enabled = options.is_enabled(request.config)
    return measurer_of(request.config, is_enabled=enabled).torch_device()
