"""Selection, stopping, expected failures, reruns, JUnit and xdist work unchanged."""

from __future__ import annotations

import os
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from scripted_project import ScriptedProject


WORKERS = ("-p", "xdist.plugin", "-n2")

THREE = """
@gpuperf.budget(ms=5)
def test_slow(gpuperf): gpuperf(int)
@gpuperf.budget(ms=12)
def test_ok(gpuperf): gpuperf(int)
def test_plain(): pass
"""


def test_lf_selects_just_the_test_that_failed_until_it_passes_again(
    project: ScriptedProject,
) -> None:
    project.file(THREE)
    project.run().assert_outcomes(failed=1, passed=2)
    project.run("--lf").assert_outcomes(failed=1)
    project.script({"*": {"step_ms": 4.0}})
    project.run("--lf").assert_outcomes(passed=1)

    result = project.run("--lf")

    result.assert_outcomes(passed=3)


def test_an_editor_runs_a_single_test_against_its_baseline_alone(
    project: ScriptedProject,
) -> None:
    project.file(THREE)
    project.store("test_slow", "test_ok")

    result = project.run("test_it.py::test_ok")

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
    assert "test_slow" not in result.stdout.str()


def test_maxfail_stops_after_the_failure_and_measures_no_other_test(
    project: ScriptedProject,
) -> None:
    project.file(
        """
def test_broken(gpuperf): assert 0
def test_plain(): pass
def test_last(gpuperf): open("last", "w"); gpuperf(int)
"""
    )

    result = project.run("--maxfail=1")

    result.assert_outcomes(failed=1)
    assert not (project.path / "last").exists()


# pytest-timeout, as far as it matters: a signal fails the test whose mark set a limit.
TIMEOUT = """
import signal
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "timeout(seconds): for pytest-timeout")

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    mark = item.get_closest_marker("timeout")
    def late(number, frame):
        pytest.fail(f"Timeout (>{mark.args[0]:.1f}s) from pytest-timeout.")
    before = signal.signal(signal.SIGALRM, late if mark else signal.SIG_DFL)
    try:
        return (yield)
    finally:
        signal.signal(signal.SIGALRM, before)
"""


def test_a_mark_of_pytest_timeout_fails_its_test_at_the_line_and_no_other(
    project: ScriptedProject,
) -> None:
    project.pytester.makeconftest(TIMEOUT)
    project.file(
        """
import signal
@pytest.mark.timeout(2)
def test_hangs(gpuperf):
    gpuperf(lambda: signal.raise_signal(signal.SIGALRM))
@pytest.mark.timeout(2)
def test_ends(gpuperf): gpuperf(int)
def test_plain(): pass
"""
    )

    result = project.run()

    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(
        [
            ">   *gpuperf(lambda: signal.raise_signal(signal.SIGALRM))",
            "E   *Failed: Timeout (>2.0s) from pytest-timeout.",
            "FAILED test_it.py::test_hangs - Failed: Timeout (>2.0s) from pytest-timeout.",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_gpuperf/measure*")


def test_xfail_takes_a_verdict_as_a_failure(project: ScriptedProject) -> None:
    project.file(
        """
@pytest.mark.xfail(strict=True, reason="known")
@gpuperf.budget(ms=5)
def test_known_slow(gpuperf): gpuperf(int)
@pytest.mark.xfail(strict=True, reason="known")
@gpuperf.budget(ms=12)
def test_no_longer_slow(gpuperf): gpuperf(int)
@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
def test_raises_as_expected(gpuperf): 1 / 0
@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
@gpuperf.budget(ms=5)
def test_slow_is_not_what_was_expected(gpuperf): gpuperf(int)
def test_xfail_inside(gpuperf): pytest.xfail("inside")
"""
    )

    result = project.run("-rxXf")

    result.assert_outcomes(xfailed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "XFAIL test_it.py::test_xfail_inside*inside",
            "FAILED test_it.py::test_no_longer_slow*",
        ]
    )


CONFTEST = """
def pytest_addoption(parser): parser.addoption("--size", default="small")
def pytest_terminal_summary():
    with open("summaries.txt", "a") as file: file.write("one ")
"""
IN_THE_CHILD = """
import os
MAIN = int(os.environ.setdefault("MAIN_PID", str(os.getpid())))
@pytest.fixture(scope="module", autouse=True)
def heavy():
    with open("set_up.txt", "a") as file: file.write(f"{os.getpid()} ")
@pytest.mark.skipif(os.getpid() == MAIN, reason="in the main process")
@gpuperf.budget(ms=12)
def test_skipped_in_the_main_process_only(gpuperf, request):
    assert request.config.getoption("--size") == "large"
    gpuperf(int)
@pytest.mark.skipif(os.getpid() != MAIN, reason="in the child")
def test_skipped_in_the_child(gpuperf): gpuperf(int)
def test_inside(gpuperf): pytest.skip("no data here")
"""


def test_skips_options_and_fixtures_are_those_of_the_child_and_the_summary_is_not(
    project: ScriptedProject,
) -> None:
    project.pytester.makeconftest(CONFTEST)
    project.file(IN_THE_CHILD)

    result = project.run("-rs", "--size=large")

    result.assert_outcomes(skipped=2, passed=1)
    source = (project.path / "test_it.py").read_text().splitlines()
    result.stdout.fnmatch_lines_random(
        [
            f"SKIPPED [[]1[]] test_it.py:{len(source)}: no data here",
            "SKIPPED [[]1[]] test_it.py:*: in the child",
        ]
    )
    pids = (project.path / "set_up.txt").read_text().split()
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    assert (project.path / "summaries.txt").read_text() == "one "


SUMMED_UP: Final = [
    "FAILED test_it.py::test_own - assert 1 == 2",
    "FAILED test_it.py::test_fixture - KeyError: 'fixture'",
    "FAILED test_it.py::test_died - the measuring process exited with 7: it printed nothing [GP602]",
    "FAILED test_it.py::test_over - OVER LIMIT syncs: 2 per step, limit 0",
]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["alone", "-n2"])
def test_a_failure_is_one_line_in_the_summary_and_in_junit(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    monkeypatch.setenv("CI", "true")  # where pytest cuts no message
    project.script({"*": {"syncs": 2}})
    project.file(
        """
import os
@pytest.fixture
def broken(): raise KeyError("fixture")
def test_own(gpuperf):
    print("what the child printed")
    assert 1 == 2
def test_fixture(gpuperf, broken): pass
def test_died(gpuperf): os._exit(7)
@gpuperf.budget(ms=12)
def test_ok(gpuperf): gpuperf(int)
@gpuperf.budget(syncs=0)
def test_over(gpuperf): gpuperf(int)
"""
    )

    result = project.run("--junit-xml=junit.xml", *workers)

    result.assert_outcomes(failed=4, passed=1)
    result.stdout.fnmatch_lines(
        ["E  *assert 1 == 2", "*Captured stdout call*", "what the child printed"]
    )
    at = [i for i, x in enumerate(result.outlines) if "short test summary" in x][-1]
    assert sorted(result.outlines[at + 1 : -1]) == sorted(SUMMED_UP)
    junit = ET.parse(project.pytester.path / "junit.xml")
    messages = [failure.get("message") for failure in junit.iter("failure")]
    assert sorted(map(str, messages)) == sorted(x.split(" - ", 1)[1] for x in SUMMED_UP)


FAILS_ONCE = """
from pathlib import Path

def test_step(gpuperf):
    tries = Path(__file__).with_suffix(".tries")
    tries.open("a").write("x")
    gpuperf(int)
    assert len(tries.read_text()) > 1
"""

RUNS_TWICE = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    runtestprotocol(item, nextitem=nextitem, log=False)
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


@pytest.mark.parametrize(
    ("mark", "conftest", "options"),
    [
        ("", "", ("-p", "pytest_rerunfailures", "--reruns=2")),
        ("", "", ("-p", "pytest_rerunfailures", "--reruns=2", *WORKERS)),
        ("@pytest.mark.flaky(reruns=1)", "", ("-p", "pytest_rerunfailures")),
        ("", RUNS_TWICE, ()),
    ],
    ids=["--reruns", "-n2", "mark flaky", "a hook of the project"],
)
def test_a_rerun_says_that_it_did_not_measure_again(
    project: ScriptedProject, mark: str, conftest: str, options: tuple[str, ...]
) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.pytester.makeconftest(conftest)
    project.file(FAILS_ONCE.replace("\ndef test", f"\nimport pytest\n{mark}\ndef test"))

    result = project.run(*options)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rerun: not run or measured again*"])


@pytest.mark.parametrize(
    "workers", ["--dist=load", "--dist=loadgroup", "--dist=worksteal", "-n0"]
)
def test_with_workers_the_controller_measures_and_every_verdict_arrives(
    project: ScriptedProject, workers: str
) -> None:
    pytest.importorskip("xdist")
    project.file(THREE)

    result = project.run(*WORKERS, workers)

    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(
        [
            "*OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms*",
            "gpuperf: 1 failed (1 over limit), 1 passed on scripted; 4 metrics without baseline",
        ]
    )


def test_an_error_before_the_start_is_a_usage_error_with_workers_too(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    project.file(THREE)
    monkeypatch.delenv("GPUPERF_SCRIPT")

    result = project.run(*WORKERS)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --gpuperf-device=scripted: set GPUPERF_SCRIPT to the script's JSON file [GP403]"
        ]
    )


def test_tests_of_a_module_share_a_process_where_the_project_says_so(
    project: ScriptedProject,
) -> None:
    project.file(
        """
import os
@gpuperf.budget(ms=12)
@pytest.mark.parametrize("n", [1, 2])
def test_step(gpuperf, n):
    with open("pids.txt", "a") as file: file.write(f"{os.getpid()} ")
    gpuperf(int)
"""
    )

    project.run().assert_outcomes(passed=2)
    project.run("-o", "gpuperf_isolation=module").assert_outcomes(passed=2)

    pids = (project.path / "pids.txt").read_text().split()
    assert len(pids) == 4
    assert pids[0] != pids[1]
    assert pids[2] == pids[3]


def test_a_child_that_cannot_collect_its_test_shows_why(
    project: ScriptedProject,
) -> None:
    project.file(
        """
import os
if os.environ.setdefault("MAIN_PID", str(os.getpid())) != str(os.getpid()):
    raise ImportError("only in the child")
def test_step(gpuperf): gpuperf(int)
"""
    )

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "the measuring process exited with 1: *",
            "E   ImportError: only in the child",
            "*pytest exited with 4 there and ran no test [[]GP6??]",
        ]
    )
