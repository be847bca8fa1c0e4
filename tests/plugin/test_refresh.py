"""Refreshing baselines: none, recorded, passes, slower fails, accepted, passes."""

from __future__ import annotations

import json

import pytest
from scripted_project import ScriptedProject


STEP = "def test_step(gpuperf): gpuperf(int)\n"
TEST = "test_it.py::test_step"


def runs_ms(project: ScriptedProject, test: str = TEST) -> list[float]:
    entry = project.entries()[test]
    return [run["times"]["step_ms"]["q25"] for run in entry["runs"]]


def test_the_life_of_a_baseline(project: ScriptedProject) -> None:
    project.file(STEP)

    project.run().assert_outcomes(passed=1, warnings=1)
    assert not project.baseline.exists()

    project.refresh().assert_outcomes(passed=1)
    recorded = project.baseline.read_text()
    project.run().assert_outcomes(passed=1)

    project.script({"*": {"step_ms": 12.0}})
    project.run().assert_outcomes(failed=1)
    assert project.baseline.read_text() == recorded

    project.refresh(which="all").assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)
    assert runs_ms(project) == [12.0] * 8


def test_a_refresh_records_eight_runs_and_prints_old_and_new(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7]}})
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 9.0}})

    result = project.refresh(which="all")

    assert runs_ms(project) == [9.0] * 8
    result.stdout.fnmatch_lines(
        [
            "gpuperf: refreshing 1 test, 8 runs each, about * s to go",
            "refreshed baselines/scripted.json:",
            "*10.35 ms  9.000 ms  -13.0 %  step_ms * test_it.py::test_step",
        ]
    )


def test_missing_leaves_what_is_there_alone(project: ScriptedProject) -> None:
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 10.05}})
    project.file(STEP + "def test_new(gpuperf): gpuperf(int)\n")

    project.refresh().assert_outcomes(passed=2)

    assert runs_ms(project) == [10.0] * 8
    assert runs_ms(project, "test_it.py::test_new") == [10.05] * 8


def test_improved_takes_what_became_faster_and_nothing_else(
    project: ScriptedProject,
) -> None:
    project.file(STEP + "def test_other(gpuperf): gpuperf(int)\n")
    project.refresh()
    project.script({"test_step": {"step_ms": 8.0}, "*": {"step_ms": 10.05}})

    project.refresh(which="improved").assert_outcomes(passed=2)

    assert runs_ms(project) == [8.0] * 8
    assert runs_ms(project, "test_it.py::test_other") == [10.0] * 8


def test_drifted_takes_small_changes_inside_the_tolerance(
    project: ScriptedProject,
) -> None:
    project.file(STEP + "def test_slower(gpuperf): gpuperf(int)\n")
    project.refresh()
    project.script({"test_slower": {"step_ms": 12.0}, "*": {"step_ms": 10.05}})

    result = project.refresh(which="drifted")

    result.assert_outcomes(passed=1, failed=1)
    assert runs_ms(project) == [10.05] * 8
    assert runs_ms(project, "test_it.py::test_slower") == [10.0] * 8


def test_a_test_over_its_budget_is_recorded_and_still_fails(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=5)\n" + STEP)

    result = project.refresh()

    result.assert_outcomes(failed=1)
    assert runs_ms(project) == [10.0] * 8


def test_a_test_that_fails_by_itself_is_not_recorded(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf):\n    gpuperf(int)\n    assert 0\n")

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    assert not project.baseline.exists()


def test_calls_of_one_test_are_entries_of_their_own(project: ScriptedProject) -> None:
    project.file(
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n    gpuperf(int, name='eval')\n    gpuperf(int)\n"
    )

    project.refresh().assert_outcomes(passed=1)

    assert set(project.entries()) == {TEST, f"{TEST}#eval", f"{TEST}#3"}


def test_every_run_writes_what_it_measured_where_git_does_not_look(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=12)\n" + STEP)

    project.run()

    folder = project.path / ".gpuperf"
    pending = json.loads((folder / "pending-scripted.json").read_text())
    assert set(pending["tests"]) == {TEST}
    assert (folder / ".gitignore").read_text() == "*\n"


def test_the_baselines_folder_is_an_option_from_the_rootdir(
    project: ScriptedProject,
) -> None:
    project.file(STEP)

    project.refresh("--gpuperf-baselines=perf/accepted").assert_outcomes(passed=1)

    assert (project.path / "perf" / "accepted" / "scripted.json").exists()


def test_hardware_has_its_own_file_and_is_never_compared_with_another(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script({"hardware": "GPU A", "*": {"step_ms": 10.0}})
    project.refresh()
    project.script({"hardware": "GPU B", "*": {"step_ms": 99.0}})

    result = project.run()

    result.assert_outcomes(passed=1, warnings=1)
    assert "gpuperf: 1 no baseline on scripted-gpu-b; 3 metrics not gated" in (
        result.outlines
    )


@pytest.mark.parametrize("value", ["", "1"])
def test_ci_refuses_to_move_its_own_baseline_unless_it_is_meant_to(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("GPUPERF_ALLOW_CI_UPDATE", value)
    project.file(STEP)

    result = project.refresh()

    if value:
        result.assert_outcomes(passed=1)
        return
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == [
        (
            "ERROR: --gpuperf-update=missing was asked for, but CI is set and a gate must "
            "not move its own baseline: refresh on a developer's machine, or set "
            "GPUPERF_ALLOW_CI_UPDATE=1 in the job that is meant to refresh"
        ),
        "",
    ]
    assert not project.baseline.exists()
