"""pytest runs inside a test, and no property is about the time it took to check."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import tempfile
from collections.abc import Iterator
from math import inf
from pathlib import Path
from threading import TIMEOUT_MAX

import pytest
from everyday import everyday, first_cases, is_no_dearest
from hypothesis import settings
from scripted_project import ScriptedProject
from warm_servers import warm_servers

import pytest_gpuperf
from pytest_gpuperf.cli import script_process as progress


__all__ = ["warm_servers"]

pytest_plugins = ["pytester"]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A job in the background ignores it, and so would what tests start and interrupt."""

os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="gpuperf-tests-")
"""Runs inside tests wait for each other's devices, and for nobody else's."""

os.environ["COLUMNS"] = "80"
"""Texts are as wide as the terminal; those of tests do not depend on the developer's."""

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
"""Threads of torch that wait for each other sleep. By default they spin, and where more
processes run than there are cores that takes ten times the CPU time of the work."""

os.environ.setdefault("PYTHONHASHSEED", "0")
"""tox sets one as well. Without it each server would have a seed of its own, and none could
be a fork of a warm one."""

_PATHS = (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
"""Where processes that tests start find the scripted device."""

for service in (
    *("GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"),
    "CI_PROJECT_DIR",
):
    os.environ.pop(
        service, None
    )  # the pages of these tests are not those of their runs


def _import_what_runs_import() -> None:
    """Import it now: ``pytester`` drops what is first imported inside of a run.

    Each run of a test would import a hundred modules again, which takes longer than what
    it measures.
    """
    for room in (
        *("baselines", "compare_commits", "judge", "model"),
        *("plugin", "report", "runner", "worker"),
    ):
        package = importlib.import_module(f"{pytest_gpuperf.__name__}.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)


_import_what_runs_import()


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """Put aside what earlier modules left: each walk of the heap would visit all of it.

    The simulated GPU collects garbage and looks for tensors several times a step, and the
    heap of thousands of collected tests takes seconds to walk.
    """
    gc.collect()  # before, or what is frozen could never be freed
    gc.freeze()


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    warm_servers: None,
) -> ScriptedProject:
    """A project whose script says 10 ms a step, no sync, 100 MiB."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")
    monkeypatch.setenv("GPUPERF_SCRIPT", str(pytester.path / "script.json"))
    monkeypatch.delenv("CI", raising=False)
    # That this suite has workers is nothing to the runs inside of it.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    # A busy machine must not put a line of progress among those that a test compares.
    for seconds in ("LINE_SECONDS", "VERBOSE_SECONDS"):
        monkeypatch.setattr(f"pytest_gpuperf.plugin.session.{seconds}", inf)
    made = ScriptedProject(pytester)
    made.script({"*": {"step_ms": 10.0}})
    return made


@pytest.fixture
def settings_unread() -> Iterator[dict[str, str]]:
    """What the simulated allocator has read: nothing, as nobody has used the GPU yet."""
    from pytest_gpuperf.devices.simulated.allocator import settings_made

    settings_made.clear()
    yield settings_made
    settings_made.clear()


@pytest.fixture(autouse=True, scope="session")
def quiet_commands() -> Iterator[None]:
    """Write no line of progress to a log: it would depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "FIRST_LOG_SECONDS", TIMEOUT_MAX)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` runs, and what other interpreters do."""
    for item in everyday(items):
        item.add_marker("everyday")
    for item in first_cases(items):
        item.add_marker("first_case")
    items.sort(key=is_no_dearest)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their place: compressed ones hold the second they were made in."""
    return argname if isinstance(val, bytes) else None
