"""``--gpuperf-inline``: in this process, for a debugger; time is only screened."""

from __future__ import annotations

from scripted_project import ScriptedProject


def test_the_test_runs_in_this_process_with_its_fixtures(
    project: ScriptedProject,
) -> None:
    project.file(
        """
import os
PID = os.getpid()
@pytest.fixture
def model(): return "model"
@gpuperf.budget(ms=12, syncs=0)
def test_step(gpuperf, model):
    assert gpuperf(lambda: model) == "model"
    assert os.getpid() == PID
    assert gpuperf.measurement.times["step_ms"].q50 == 10.0
def test_plain(): pass
"""
    )

    result = project.run("--gpuperf-inline")

    result.assert_outcomes(passed=2)
    assert "gpuperf: 1 passed on scripted; 1 metric without baseline" in result.outlines


def test_exact_metrics_fail_and_time_stays_open(project: ScriptedProject) -> None:
    project.script({"test_syncs": {"syncs": 3}, "*": {"step_ms": 10.0}})
    project.file(
        """
@gpuperf.budget(syncs=0)
def test_syncs(gpuperf): gpuperf(int)
@gpuperf.budget(ms=5)
def test_time(gpuperf): gpuperf(int)
def test_never(gpuperf): pass
def test_own(gpuperf): assert 0
"""
    )

    result = project.run("--gpuperf-inline")

    result.assert_outcomes(failed=3, passed=1, warnings=1)
    assert "OVER LIMIT syncs: 3 per step, limit 0" in result.outlines
    result.stdout.fnmatch_lines(["*runs; inline, time is only screened*"])
    assert (
        "gpuperf: 1 failed (1 over limit), 1 undecided on scripted; without a "
        "verdict: 2 failed; 4 metrics without baseline"
    ) in result.outlines


def test_a_slowdown_is_screened_against_the_baseline(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.refresh()
    project.run("--gpuperf-inline").assert_outcomes(passed=1)
    project.script({"*": {"step_ms": 12.0}})

    result = project.run("--gpuperf-inline")

    result.assert_outcomes(passed=1, warnings=1)
    assert "gpuperf: 1 undecided on scripted" in result.outlines
