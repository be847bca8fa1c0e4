"""Workers of pytest-xdist crash, and other plugins interfere: no verdict is lost in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import entries_in
from scripted_project import ScriptedProject


THREE = """
@gpuperf.budget(ms=5)
def test_slow(gpuperf): gpuperf(int)
@gpuperf.budget(ms=12)
def test_ok(gpuperf): gpuperf(int)
def test_plain(): pass
"""
SLOW, OK = "test_it.py::test_slow", "test_it.py::test_ok"

ONE_FAILED = (
    "gpuperf: 1 failed (1 over limit), 1 passed on scripted; 4 metrics without baseline"
)

WORKERS = ("-p", "xdist.plugin", "-n2")


@pytest.fixture
def with_workers(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> ScriptedProject:
    pytest.importorskip("xdist")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    project.file(THREE)
    return project


def results(project: ScriptedProject) -> dict[str, Any]:
    text = (project.path / ".gpuperf" / "results.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def measured_runs(project: ScriptedProject) -> dict[str, int]:
    """Count the runs of each test that the last enabled run measured."""
    tests = entries_in(project.path / ".gpuperf" / "pending-scripted.json")
    return {test: len(entry["runs"]) for test, entry in tests.items()}


CRASHES = """
import os
import pytest

FIRST, LAST = pytest.hookimpl(tryfirst=True), pytest.hookimpl(trylast=True)

def crash_once(worker):
    if os.environ.get("PYTEST_XDIST_WORKER") == worker:
        os._exit(9)
"""


@pytest.mark.parametrize(
    ("when", "dist"),
    [
        ("crash_once('gw0')", "loadfile"),
        ("def pytest_collection(): crash_once('gw0')", "load"),
        ("@LAST\ndef pytest_collection_finish(): crash_once('gw0')", "load"),
        ("@FIRST\ndef pytest_runtestloop(): crash_once('gw0')", "load"),
        ("def pytest_runtest_logfinish(): crash_once('gw0')", "loadfile"),
    ],
    ids=["importing", "collecting", "collected", "starting", "reporting"],
)
def test_in_place_of_a_worker_that_crashes_another_one_reports(
    with_workers: ScriptedProject, when: str, dist: str
) -> None:
    with_workers.pytester.makeconftest(CRASHES + when)

    result = with_workers.run(*WORKERS, f"--dist={dist}")

    assert ONE_FAILED in result.outlines
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = results(with_workers)
    assert (set(found["tests"]), found["unreported"]) == ({SLOW, OK}, [])


def test_an_internal_error_in_a_worker_fails_the_run(
    with_workers: ScriptedProject,
) -> None:
    """xdist prints it, and with one worker ends the run as one that passed."""
    with_workers.file("@gpuperf.budget(ms=12)\ndef test_ok(gpuperf): gpuperf(int)\n")
    with_workers.pytester.makeconftest(
        "import os\ndef pytest_runtest_logfinish():\n"
        "    assert 'PYTEST_XDIST_WORKER' not in os.environ, 'broken'\n"
    )

    result = with_workers.run("-p", "xdist.plugin", "-n1")

    assert result.ret in {
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.INTERNAL_ERROR,
    }
    result.stdout.fnmatch_lines(["INTERNALERROR> * AssertionError: broken"])


IN_MAIN_PROCESS = """
import sys
import pytest

MAIN = not any("pytest_gpuperf.runner.fork_server_process" in word for word in sys.orig_argv)
"""


DROPS = """:
    kept = [item for item in session.items if not MAIN or item.name != "test_ok"]
    session.items[:] = kept
"""


@pytest.mark.parametrize(
    ("conftest", "line"),
    [
        (
            (
                "@pytest.hookimpl(tryfirst=True)\n"
                f"def pytest_runtestloop(session){DROPS}"
            ),
            f"gpuperf: 1 passed on scripted; 2 metrics without baseline; 1 WITHOUT A RESULT: {OK}",
        ),
        (
            (
                "@pytest.hookimpl(tryfirst=True)\n"
                "def pytest_runtest_protocol(item):\n"
                "    return item.name == 'test_ok' or None"
            ),
            f"gpuperf: no verdict on scripted; without a verdict: 1 died; 1 WITHOUT A RESULT: {OK}",
        ),
        (
            (
                "def pytest_runtest_setup(item):\n"
                "    if item.name == 'test_plain': pytest.exit('done', returncode=0)"
            ),
            f"gpuperf: 1 passed on scripted; 2 metrics without baseline; 1 WITHOUT A RESULT: {OK}",
        ),
    ],
    ids=[
        "drops in the loop",
        "own protocol",
        "exit 0",
    ],
)
def test_a_selected_test_whose_verdict_is_not_reported_fails_the_run(
    project: ScriptedProject, conftest: str, line: str
) -> None:
    project.file(
        "def test_plain(): pass\n"
        "@gpuperf.budget(ms=12)\ndef test_ok(gpuperf): gpuperf(int)\n"
    )
    project.pytester.makeconftest(IN_MAIN_PROCESS + conftest)

    result = project.run()

    assert line in result.outlines
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert results(project)["unreported"] == [OK]


def test_what_another_plugin_takes_away_was_collected_and_not_selected(
    project: ScriptedProject,
) -> None:
    project.file(THREE)
    project.pytester.makeconftest(
        f"{IN_MAIN_PROCESS}@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_modifyitems(items): del items[:MAIN]\n"
    )

    result = project.run()

    result.assert_outcomes(passed=2)
    found = results(project)
    assert (found["collected"], found["selected"]) == ([SLOW, OK], [OK])


@pytest.mark.parametrize("workers", [(), WORKERS], ids=["alone", "-n2"])
def test_a_test_that_stands_twice_is_measured_once_and_reported_twice(
    project: ScriptedProject, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    project.file(THREE)
    project.pytester.makeconftest(
        f"{IN_MAIN_PROCESS}def pytest_collection_modifyitems(items):\n"
        "    items.extend(items[:MAIN])\n"
    )

    result = project.run(*workers)

    result.assert_outcomes(failed=2, passed=2)
    assert ONE_FAILED in result.outlines
    assert measured_runs(project) == {SLOW: 2, OK: 1}


SKIPS = """
def pytest_runtest_setup(item):
    if {condition}:
        pytest.skip("no GPU here")
"""


@pytest.mark.parametrize("workers", [(), WORKERS], ids=["alone", "-n2"])
def test_a_hook_of_the_project_skips_a_measured_test_in_its_child_alone(
    project: ScriptedProject, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    project.file(THREE)
    project.pytester.makeconftest(IN_MAIN_PROCESS + SKIPS.format(condition="MAIN"))

    here = project.run(*workers)
    project.pytester.makeconftest(IN_MAIN_PROCESS + SKIPS.format(condition="not MAIN"))
    there = project.run(*workers)

    here.assert_outcomes(failed=1, passed=1, skipped=1)
    assert ONE_FAILED in here.outlines
    there.assert_outcomes(passed=1, skipped=2)


def test_under_dist_each_every_worker_reports_every_verdict(
    with_workers: ScriptedProject,
) -> None:
    result = with_workers.run("-p", "xdist.plugin", "--dist=each", "--tx=2*popen")

    result.assert_outcomes(failed=2, passed=4)
    assert ONE_FAILED in result.outlines
    assert measured_runs(with_workers) == {SLOW: 2, OK: 1}


GROUPED = """
@pytest.mark.xdist_group("the GPU")
def test_step(gpuperf): gpuperf(int)
@pytest.mark.xdist_group("mail")
@pytest.mark.parametrize("x", ["a@b"])
def test_odd(gpuperf, x): gpuperf(int)
"""


def test_a_group_of_tests_is_no_part_of_their_names(
    with_workers: ScriptedProject,
) -> None:
    with_workers.file(GROUPED)
    grouped = (*WORKERS, "--dist=loadgroup")
    names = {"test_it.py::test_step", "test_it.py::test_odd[a@b]"}
    counted = "gpuperf: 2 passed on scripted"

    with_workers.refresh(*grouped).assert_outcomes(passed=2)
    alone, together = with_workers.run(), with_workers.run(*grouped)

    assert set(with_workers.entries()) == names
    assert counted in alone.outlines
    assert counted in together.outlines
    assert set(results(with_workers)["tests"]) == names


def test_a_crash_in_a_group_is_known_by_the_test_s_own_name(
    with_workers: ScriptedProject,
) -> None:
    with_workers.file(GROUPED)
    with_workers.pytester.makeconftest(
        CRASHES + "def pytest_runtest_setup(item):\n"
        "    if item.name == 'test_step' and not os.path.exists('crashed'):\n"
        "        open('crashed', 'w').close()\n"
        "        os._exit(9)\n"
    )

    result = with_workers.run(*WORKERS, "--dist=loadgroup", "-rf")

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_step*"])
    result.stdout.no_fnmatch_line("*WITHOUT A RESULT*")


def test_with_workers_ff_measures_all_and_the_one_that_failed_first(
    with_workers: ScriptedProject,
) -> None:
    with_workers.file(THREE.replace("test_ok", "test_a").replace("ms=5)", "ms=50)"))
    with_workers.script({"test_slow": {"step_ms": 9.0}, "*": {"step_ms": 20.0}})
    with_workers.run(*WORKERS).assert_outcomes(failed=1, passed=2)

    result = with_workers.run("-p", "xdist.plugin", "-n1", "--ff")

    result.assert_outcomes(failed=1, passed=2)
    found = results(with_workers)
    assert found["selected"] == ["test_it.py::test_a", SLOW]
