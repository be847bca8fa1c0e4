"""Refreshing baselines: none, recorded, passes, slower fails, accepted, passes."""

from __future__ import annotations

import json

import pytest
from scripted_project import ON
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

    project.refresh(which="all").assert_outcomes(failed=1)
    assert project.baseline.read_text() == recorded

    accepted = project.refresh("--gpuperf-accept-drift", which="all")
    accepted.assert_outcomes(passed=1)
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
            "refreshed baselines/scripted.json:",
            "*10.35 ms  9.000 ms  -13.0 %  step_ms * test_it.py::test_step",
        ]
    )


def test_a_refresh_says_how_small_a_slowdown_can_be_seen(
    project: ScriptedProject,
) -> None:
    project.file(STEP)

    result = project.refresh()

    assert (
        "noise: runs vary by 0.2 %; this machine can detect slowdowns of 1.7 % or more"
        in (result.outlines)
    )


def test_a_refresh_on_a_noisy_machine_names_the_tolerance_that_helps(
    project: ScriptedProject,
) -> None:
    noisy = [10.0, 10.9, 10.2, 9.9, 11.0, 10.4, 10.1, 10.5]
    project.script({"test_calm": {"step_ms": 10.0}, "*": {"step_ms": noisy}})
    project.file(
        "@gpuperf.tolerance(ms='0.5%')\ndef test_calm(gpuperf): gpuperf(int)\n"
        "def test_noisy(gpuperf): gpuperf(int)\n"
    )

    advised = project.refresh(which="all").outlines
    project.pytester.makeini("[pytest]\ngpuperf_tolerance = ms=10%\n")
    followed = project.refresh(which="all").outlines

    start = advised.index("refreshed baselines/scripted.json:")
    assert advised[start + 4 : -2] == [
        "noise: runs vary by 2.1 % (median of 2 tests); this machine can detect slowdowns",
        "    of 9.9 % or more, but with their tolerances only 1 of 2 tests would pass",
        "    unchanged; 2 of 2 would with --gpuperf-tolerance=ms=10%",
        "    undecided tests are compared with the baseline's code, run again from git",
    ]
    assert "with" not in " ".join(followed)


def test_nothing_is_said_of_noise_where_nothing_was_recorded(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf):\n    gpuperf(int)\n    assert 0\n")

    result = project.refresh(which="all")

    assert "noise:" not in result.stdout.str()


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


CREEP_MS = (10.09, 10.18, 10.27, 10.36)
"""Each 0.9 % slower than the one before: within the tolerance of 1 %."""


def creep(project: ScriptedProject, *arguments: str) -> list[pytest.RunResult]:
    """Follow a test that gets slower and slower with ``all``."""
    project.file(STEP + "def test_other(gpuperf): gpuperf(int)\n")
    project.refresh().assert_outcomes(passed=2)
    results = []
    for ms in CREEP_MS:
        project.script({"test_step": {"step_ms": ms}, "*": {"step_ms": 10.0}})
        results.append(project.refresh(*arguments, which="all"))
    return results


ACCEPT = "gpuperf refresh --accept-drift --device=scripted test_it.py::test_step"


ACCEPTING = (
    *("--gpuperf", "--gpuperf-update=all", "--gpuperf-accept-drift"),
    *("--gpuperf-device=scripted", "test_it.py::test_step"),
)
"""What that command hands to pytest."""


def test_small_changes_are_followed_until_they_add_up_to_a_slowdown(
    project: ScriptedProject,
) -> None:
    *followed, refused = creep(project)

    for result in followed:
        result.assert_outcomes(passed=2)
    assert (
        "10.18 ms  10.27 ms  +0.9 %  +2.7 %  step_ms  test_it.py::test_step"
        in followed[-1].outlines
    )
    refused.assert_outcomes(passed=1, failed=1)
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert runs_ms(project) == [10.27] * 8
    refused.stdout.fnmatch_lines(
        [
            (
                "DRIFTED step time: 10.36 ms, was 10.00 ms (+3.6 %) when last accepted, "
                "allowed 10.30 ms"
            ),
            (
                "  why      more than a refresh stores unasked (detect 3 %): the "
                "baseline is left"
            ),
            "           as it was",
            f"  accept   {ACCEPT}",
            "not refreshed in baselines/scripted.json, too far from the last accepted value:",
            "accepted       now   drift     allowed  metric   test",
            "10.00 ms  10.36 ms  +3.6 %  detect 3 %  step_ms  test_it.py::test_step",
            (
                "gpuperf: 1 test was not refreshed, too far from its last accepted value; look for "
                f"the cause, or accept it with: {ACCEPT}"
            ),
            "gpuperf: 2 passed on scripted; 1 NOT REFRESHED",
        ],
        consecutive=False,
    )


@pytest.mark.parametrize("place", ["option", "ini"])
def test_drift_that_is_accepted_moves_the_anchor(
    project: ScriptedProject, place: str
) -> None:
    creep(project)
    ini = "[pytest]\ngpuperf_accept_drift = true\n" if place == "ini" else ""
    project.pytester.makeini(ini)
    option = ["--gpuperf-accept-drift"] if place == "option" else []

    result = project.refresh(*option, TEST, which="all")

    result.assert_outcomes(passed=1)
    assert runs_ms(project) == [10.36] * 8
    assert project.entries()[TEST]["anchor"]["step_ms"] == 10.36
    assert project.entries()["test_it.py::test_other"]["anchor"]["step_ms"] == 10.0


def test_the_command_line_that_is_told_accepts_the_drift(
    project: ScriptedProject,
) -> None:
    creep(project)

    result = project.pytester.runpytest_inprocess(*ACCEPTING)

    result.assert_outcomes(passed=1)
    assert runs_ms(project) == [10.36] * 8


def test_the_author_says_how_far_a_test_may_drift(project: ScriptedProject) -> None:
    results = creep(project, "--override-ini=gpuperf_detect=4%")

    assert [result.ret for result in results] == [pytest.ExitCode.OK] * 4
    assert runs_ms(project) == [10.36] * 8
    assert project.entries()[TEST]["anchor"]["step_ms"] == 10.0


def test_a_gain_takes_the_anchor_along_so_that_it_cannot_be_lost_again(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 9.0}})
    project.refresh(which="improved").assert_outcomes(passed=1)
    project.script({"*": {"step_ms": 9.5}})

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    assert project.entries()[TEST]["anchor"]["step_ms"] == 9.0
    assert (
        "DRIFTED step time: 9.500 ms, was 9.000 ms (+5.6 %) when last accepted, allowed "
        "9.270 ms"
    ) in result.outlines


def test_a_sync_more_is_refused_and_shown_above_what_failed(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "DRIFTED waits: 1 per step, was 0 (+1) when last accepted, allowed 0",
            "  why      more than a refresh stores unasked (tolerance 0 %): *",
            f"  accept   {ACCEPT}",
            "NEW WAIT: 1 per step, was 0 (+1), allowed 0",
            "  --> train.py:12 in step: new: aten::_local_scalar_dense, 1 per step",
        ]
    )


def test_one_call_that_drifted_leaves_the_others_to_be_refreshed(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0}, "test_step#eval": {"step_ms": 10.0}})
    project.file(
        "def test_step(gpuperf):\n    gpuperf(int)\n    gpuperf(int, name='eval')\n"
    )
    project.refresh()
    project.script({"*": {"step_ms": 10.2}, "test_step#eval": {"step_ms": 10.4}})

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    assert f"  call     {TEST}#eval" in result.outlines
    assert runs_ms(project) == [10.2] * 8
    assert runs_ms(project, f"{TEST}#eval") == [10.0] * 8


def test_drift_fails_the_run_also_where_its_test_may_fail(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.refresh()
    project.file("@pytest.mark.xfail\n" + STEP)
    project.script({"*": {"step_ms": 12.0}})

    result = project.refresh(which="all")

    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert runs_ms(project) == [10.0] * 8


def test_workers_hear_of_drift_too(project: ScriptedProject) -> None:
    pytest.importorskip("xdist")
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 12.0}})

    result = project.pytester.runpytest_subprocess(
        "-p", "xdist", "-n2", *ON, "--gpuperf-update=all"
    )

    result.assert_outcomes(failed=1)
    assert "gpuperf: 1 failed (1 worse) on scripted; 1 NOT REFRESHED" in (
        result.outlines
    )
    assert runs_ms(project) == [10.0] * 8


def test_what_moved_less_than_its_own_noise_is_kept_and_said_to_be(
    project: ScriptedProject,
) -> None:
    noisy = [9.8, 9.9, 9.9, 10.0, 10.0, 10.1, 10.1, 10.2]
    project.script({"*": {"step_ms": noisy}})
    project.file(STEP + "def test_other(gpuperf): gpuperf(int)\n")
    project.refresh()
    recorded = project.baseline.read_text()
    project.script({"*": {"step_ms": [ms + 0.05 for ms in noisy]}})

    result = project.refresh(which="all")

    result.assert_outcomes(passed=2)
    assert project.baseline.read_text() == recorded
    start = result.outlines.index(
        "kept in baselines/scripted.json, moved less than its own noise:"
    )
    assert result.outlines[start + 1 : start + 4] == [
        "  stored       now  change  noise  metric   test",
        "9.999 ms  10.05 ms  +0.5 %  1.3 %  step_ms  test_it.py::test_other",
        "9.999 ms  10.05 ms  +0.5 %  1.3 %  step_ms  test_it.py::test_step",
    ]
    assert "gpuperf: 2 passed on scripted" in result.outlines


def test_a_kept_test_is_still_judged_by_its_budget(project: ScriptedProject) -> None:
    project.file(STEP)
    project.refresh()
    project.file("@gpuperf.budget(ms=5)\n" + STEP)

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    assert "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms" in result.outlines
    assert (
        "10.00 ms  10.00 ms   0.0 %  0.2 %  step_ms  test_it.py::test_step"
        in result.outlines
    )


def test_other_software_rewrites_what_did_not_move(project: ScriptedProject) -> None:
    project.script({"software": {"torch": "2.12.0"}, "*": {"step_ms": 10.0}})
    project.file(STEP)
    project.refresh()
    project.script({"software": {"torch": "2.13.0"}, "*": {"step_ms": 10.0}})

    project.refresh(which="all").assert_outcomes(passed=1)

    assert project.entries()[TEST]["software"]["torch"] == "2.13.0"


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

    project.refresh("--override-ini=gpuperf_baselines=perf/accepted").assert_outcomes(
        passed=1
    )

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
    assert "gpuperf: 1 no baseline on scripted GPU B; 3 metrics without baseline" in (
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
            "GPUPERF_ALLOW_CI_UPDATE=1 in a job for refreshing [GP104]"
        ),
        "",
    ]
    assert not project.baseline.exists()


def test_evidence_adds_the_runs_of_another_occasion(project: ScriptedProject) -> None:
    project.file("def test_a(gpuperf):\n    gpuperf(lambda: None)\n")
    project.script({"*": {"step_ms": 10.0}})
    project.refresh(which="evidence").assert_outcomes(passed=1)
    (before,) = project.entries().values()
    project.script({"*": {"step_ms": 10.1}})

    result = project.refresh(which="evidence")

    result.assert_outcomes(passed=1)
    (after,) = project.entries().values()
    assert after["anchor"] == before["anchor"]
    assert after["runs"][:8] == before["runs"]
    assert [run["times"]["step_ms"]["q25"] for run in after["runs"][8:]] == [10.1] * 5
    assert len({run["occasion"] for run in after["runs"]}) == 2


def test_a_slower_test_is_no_evidence_and_fails(project: ScriptedProject) -> None:
    project.file("def test_a(gpuperf):\n    gpuperf(lambda: None)\n")
    project.script({"*": {"step_ms": 10.0}})
    project.refresh()
    before = project.baseline.read_text()
    project.script({"*": {"step_ms": 11.0}})

    project.refresh(which="evidence").assert_outcomes(failed=1)

    assert project.baseline.read_text() == before
