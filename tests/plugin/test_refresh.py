"""Refreshing baselines: none, recorded, passes, slower fails, accepted, passes."""

from __future__ import annotations

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

    project.refresh(which="all").assert_outcomes(failed=1)
    assert project.baseline.read_text() == recorded

    accepted = project.refresh(which="drift")
    accepted.assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)
    assert runs_ms(project) == [12.0] * 8


def test_a_refresh_records_eight_runs_and_prints_old_and_new(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7]}})
    project.file(STEP)
    project.record()
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


OTHER = "def test_other(gpuperf): gpuperf(int)\n"


ACCEPT = "gpuperf refresh --accept-drift --device=scripted test_it.py::test_step"


def test_small_changes_are_followed_until_they_add_up_to_a_slowdown(
    project: ScriptedProject,
) -> None:
    project.file(STEP + OTHER)
    project.record()
    followed = []
    for ms in (10.09, 10.18, 10.27, 10.36):
        project.script({"test_step": {"step_ms": ms}, "*": {"step_ms": 10.0}})
        followed.append(project.refresh(which="all"))
    refused = followed.pop()

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


def test_the_author_says_how_far_a_test_may_drift(project: ScriptedProject) -> None:
    project.file(f"@gpuperf.tolerance(ms='1%', detect='4%')\n{STEP}")
    project.record()
    project.script({"*": {"step_ms": 10.36}})

    result = project.refresh(which="all")

    assert result.ret == pytest.ExitCode.OK
    assert runs_ms(project) == [10.36] * 8
    assert project.entries()[TEST]["anchor"]["step_ms"] == 10.0


def test_a_sync_more_is_refused_and_shown_above_what_failed(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.record()
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "DRIFTED syncs: 1 per step, was 0 (+1) when last accepted, allowed 0",
            "  why      more than a refresh stores unasked (tolerance 0 %): *",
            f"  accept   {ACCEPT}",
            "NEW SYNC: 1 per step, was 0 (+1), allowed 0",
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
    project.record()
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
    project.record()
    project.file("@pytest.mark.xfail\n" + STEP)
    project.script({"*": {"step_ms": 12.0}})

    result = project.refresh(which="all")

    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert runs_ms(project) == [10.0] * 8


def test_what_moved_less_than_its_own_noise_is_kept_and_said_to_be(
    project: ScriptedProject,
) -> None:
    noisy = [9.8, 9.9, 9.9, 10.0, 10.0, 10.1, 10.1, 10.2]
    project.script({"*": {"step_ms": noisy}})
    project.file(STEP + OTHER)
    project.record()
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


def test_a_test_over_its_budget_is_recorded_or_kept_and_still_fails(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=5)\n" + STEP)

    recorded, kept = project.refresh(), project.refresh(which="all")

    assert runs_ms(project) == [10.0] * 8
    recorded.assert_outcomes(failed=1)
    kept.assert_outcomes(failed=1)
    assert "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms" in kept.outlines
    assert f"10.00 ms  10.00 ms   0.0 %  0.2 %  step_ms  {TEST}" in kept.outlines


def test_a_test_that_fails_by_itself_is_not_recorded(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf):\n    gpuperf(int)\n    assert 0\n")

    result = project.refresh(which="all")

    result.assert_outcomes(failed=1)
    assert "noise:" not in result.stdout.str()
    assert not project.baseline.exists()


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
