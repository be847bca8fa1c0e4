"""Refreshing baselines: none, recorded, passes, slower fails, accepted, passes."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject, otherwise


STEP = "def test_step(gpuperf): gpuperf(int)\n"
TEST = "test_it.py::test_step"


def runs_ms(project: ScriptedProject, test: str = TEST) -> list[float]:
    entry = project.entries()[test]
    return [run["times"]["step_ms"]["q25"] for run in entry["runs"]]


def test_the_life_of_a_baseline(project: ScriptedProject) -> None:
    project.file(STEP)

    project.run().assert_outcomes(passed=1)
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


TESTS_OF = "test_it.py::"

TESTS = """
@gpuperf.tolerance(ms="1%", detect="4%")
def test_author(gpuperf): gpuperf(int)
def test_sync(gpuperf): gpuperf(int)
def test_calls(gpuperf):
    gpuperf(int)
    gpuperf(int, name="eval")
@gpuperf.budget(ms=5)
def test_over(gpuperf): gpuperf(int)
def test_noisy(gpuperf): gpuperf(int)
def test_fails(gpuperf):
    gpuperf(int)
    assert 0
"""
NOISY = [9.8, 9.9, 9.9, 10.0, 10.0, 10.1, 10.1, 10.2]
MOVED: dict[str, object] = {
    "*": {"step_ms": 10.0},
    "test_author": {"step_ms": 10.36},
    "test_sync": {"step_ms": 10.0, "syncs": 1},
    "test_calls": {"step_ms": 10.2},
    "test_calls#eval": {"step_ms": 10.4},
    "test_noisy": {"step_ms": [ms + 0.05 for ms in NOISY]},
}
SAYS = {
    "test_author": ("passed",),
    "test_sync": (
        "failure",
        "NEW SYNC: 1 per step, was 0 (+1), allowed 0",
        "train.py:12 in step: new: aten::_local_scalar_dense, 1 per step",
        "gpuperf refresh --accept-drift --device=scripted test_it.py::test_sync",
        "kept the baseline is left as it was: more than a refresh stores unasked",
    ),
    "test_calls": (
        "failure",
        "SLOWER: 10.40 ms per step, was 10.00 ms (+4.0 %)",
        f"call {TESTS_OF}test_calls#eval",
        "kept the baseline is left as it was",
    ),
    "test_over": ("failure", "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms"),
    "test_noisy": ("passed",),
    "test_fails": ("failure", "assert 0"),
}
KEPT = (
    "moved less than its own noise: stored now change noise metric test 9.999 ms 10.05"
)


def test_a_refresh_stores_what_moved_a_little_and_refuses_what_drifted(
    project: ScriptedProject,
) -> None:
    project.file(TESTS)
    project.script({"*": {"step_ms": 10.0}, "test_noisy": {"step_ms": NOISY}})
    project.refresh().assert_outcomes(passed=4, failed=2)
    before = project.entries()
    project.script(MOVED)

    cases = project.cases("--gpuperf-update=all")

    assert otherwise(cases, SAYS) == []
    assert KEPT in " ".join(project.shown.stdout.str().split())
    after = project.entries()
    assert after.keys() == {
        f"{TESTS_OF}test_{name}"
        for name in ("author", "sync", "calls", "calls#eval", "over", "noisy")
    }
    moved = {call for call in after if after[call] != before[call]}
    assert moved == {f"{TESTS_OF}test_author", f"{TESTS_OF}test_calls"}
    assert runs_ms(project, f"{TESTS_OF}test_author") == [10.36] * 8
    assert after[f"{TESTS_OF}test_author"]["anchor"]["step_ms"] == 10.0


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
            "DRIFTED step time: 10.36 ms, was 10.00 ms (+3.6 %) when last accepted, *",
            f"  accept   {ACCEPT}",
            "10.00 ms  10.36 ms  +3.6 %  detect 3 %  step_ms  test_it.py::test_step",
            "gpuperf: 2 passed on scripted; 1 NOT REFRESHED",
        ],
    )


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

    result.assert_outcomes(passed=1)
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


def test_evidence_adds_the_runs_of_another_session(project: ScriptedProject) -> None:
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
    assert len({run["session"] for run in after["runs"]}) == 2
