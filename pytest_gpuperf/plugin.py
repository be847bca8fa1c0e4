"""The pytest plugin: hooks and fixtures, nothing else.

Every pytest run where it is installed imports it, so it imports the rest when asked.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING
from typing import Any

import pytest

from . import marks
from . import options
from .errors import GpuperfError
from .refusal import MarkInspector


if TYPE_CHECKING:
    from .fixture import Gpuperf
    from .settings import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    options.register(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Pretend before a conftest file looks for a GPU, be quiet before anyone speaks."""
    if options.will_measure_inline(early_config):
        from .inline import pretend_if_asked

        pretend_if_asked(early_config)
    if options.will_follow(early_config):
        from .launched import be_quiet

        be_quiet(early_config)


def pytest_configure(config: pytest.Config) -> None:
    for mark in marks.REGISTERED:
        config.addinivalue_line("markers", mark)
    config.pluginmanager.register(MarkInspector(), "gpuperf-marks")
    if options.is_enabled(config):
        _enable(config)


def _enable(config: pytest.Config) -> None:
    from .fixture import measurer_key

    if measurer_key in config.stash:  # a measuring process
        return
    _forget_older_run(config)
    try:
        settings = options.settings_from(config, options.environment())
        plugin = _enabled_plugin(config, settings)
        config.pluginmanager.register(plugin, "gpuperf-run")
        _record(config, settings, plugin)
    except GpuperfError as error:
        raise pytest.UsageError(str(error)) from None


def _forget_older_run(config: pytest.Config) -> None:
    """Let nobody take the results of an older run for those of one that cannot begin."""
    from .model.results import FILE
    from .settings import ARTEFACTS

    if not hasattr(config, "workerinput"):
        with suppress(OSError):
            (config.rootpath / ARTEFACTS / FILE).unlink(missing_ok=True)


def _record(config: pytest.Config, settings: Settings, plugin: Any) -> None:
    """Remember what is selected, leave the results in a file, feed who wants them."""
    from .selection import SELECTION
    from .selection import SelectionWatch

    config.stash[SELECTION] = selection = SelectionWatch(config)
    config.pluginmanager.register(selection, "gpuperf-selection")
    reports = settings.launch is None or settings.launch.rank == 0
    if reports and not hasattr(config, "workerinput"):
        from .results import ResultsFile

        results = ResultsFile(config, settings, plugin)
        config.pluginmanager.register(results, "gpuperf-results")
        _keep_history(config, settings, plugin)
        _feed_benchmark(config, settings, plugin)


def _keep_history(config: pytest.Config, settings: Settings, plugin: Any) -> None:
    """Leave a file a run where the project keeps a history; a debugger leaves none."""
    if settings.history is None or settings.inline:
        return
    from .keeping import HistoryKeeper

    keeper = HistoryKeeper(settings.history, config.rootpath, plugin)
    config.pluginmanager.register(keeper, "gpuperf-history")


def _feed_benchmark(config: pytest.Config, settings: Settings, plugin: Any) -> None:
    """Hand what is measured to pytest-benchmark, where that is asked."""
    if not settings.benchmark:
        return
    from .feeding import BenchmarkFeed

    feed = BenchmarkFeed(config, plugin)
    config.pluginmanager.register(feed, "gpuperf-benchmark")


def _enabled_plugin(config: pytest.Config, settings: Settings) -> object:
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        from .workers import XdistWorker

        return XdistWorker(workerinput, settings)
    if settings.launch is not None and settings.launch.rank:
        from .launched import Follower

        return Follower(config, settings, settings.launch)
    if settings.inline:
        from .inline import InlineSession

        return InlineSession(config, settings)
    from .commits.referee import GitReferee

    sides = options.repeated_on_sides(config)
    referee = GitReferee(config.rootpath, settings, sides)
    if config.getoption("dist", "no") != "no":
        from .workers import XdistController

        return XdistController(config, settings, referee)
    from .session import GpuperfSession

    if settings.launch is not None:
        from .launched import Leader

        config.pluginmanager.register(Leader(settings.launch), "gpuperf-leader")
    return GpuperfSession(config, settings, referee)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: a worker a GPU, as workers that share one only wait for it."""
    if not options.is_enabled(config):
        return None
    from .workers import auto_workers

    return auto_workers(config, options.environment())


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, object]
) -> None:
    """Tell runs on different GPUs apart, with and without ``--gpuperf``."""
    if options.is_asked(config, "gpuperf_benchmark"):
        from .devices.nvml import machine_gpus

        machine_info["gpu"] = machine_gpus()


def pytest_itemcollected(item: pytest.Item) -> None:
    if "gpuperf" in getattr(item, "fixturenames", ()):
        item.add_marker(marks.AUTO_MARK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that asks for ranks be one of them where nobody starts more."""
    if item.get_closest_marker(marks.RANKS_MARK) is None:
        return (yield)
    from .ranked.group import alone

    with alone():
        return (yield)


@pytest.fixture
def gpuperf(request: pytest.FixtureRequest) -> Gpuperf:
    """Measure and judge a training step: ``gpuperf(step)``."""
    from .fixture import Gpuperf
    from .fixture import Unmeasured
    from .fixture import measurer_key

    measurer = request.config.stash.get(measurer_key, Unmeasured())
    return Gpuperf(measurer, request.node)


@pytest.fixture(scope="session")
def gpuperf_device(request: pytest.FixtureRequest) -> str:
    """Name the device for models and data of wider scopes: ``"cuda"`` or ``"cpu"``."""
    from .fixture import Unmeasured
    from .fixture import measurer_key

    return request.config.stash.get(measurer_key, Unmeasured()).torch_device()
