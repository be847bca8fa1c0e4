"""Outcomes of the judge, as pytest shows them."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


STEP = "def test_step(gpuperf): gpuperf(int)\n"


def test_a_step_over_its_budget_fails_with_the_numbers_and_the_line(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0, "syncs": 2}})
    project.file("@gpuperf.budget(ms=9, syncs=1)\n" + STEP)

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: 10.00 ms per step, limit 9.000 ms",
            "OVER LIMIT syncs: 2 per step, limit 1",
            "*train.py:12 in step: aten::_local_scalar_dense, 1 per step*",
        ]
    )


def test_a_slowdown_or_a_new_wait_fails_and_names_the_refresh_command(
    project: ScriptedProject,
) -> None:
    project.file(STEP + "def test_waits(gpuperf): gpuperf(int)\n")
    project.record()
    project.script({"test_step": {"step_ms": 12.0}, "*": {"syncs": 1}})

    result = project.run()

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "SLOWER: 12.00 ms per step, was 10.00 ms (+20.0 %), allowed 10.15 ms",
            "*gpuperf refresh --accept-drift --device=scripted test_it.py::test_step",
            "NEW SYNC: 1 per step, was 0 (+1), allowed 0*",
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "ci", "outcome"),
    [
        ((), "", {"passed": 1, "warnings": 1}),
        ((), "true", {"failed": 1}),
        (
            ("--override-ini=gpuperf_missing_baseline=warn",),
            "true",
            {"passed": 1, "warnings": 1},
        ),
        (("--override-ini=gpuperf_missing_baseline=fail",), "", {"failed": 1}),
    ],
)
def test_a_test_with_neither_budget_nor_baseline_warns_here_and_fails_in_ci(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    ci: str,
    outcome: dict[str, int],
) -> None:
    monkeypatch.setenv("CI", ci)
    project.file(STEP)

    result = project.run(*arguments)

    result.assert_outcomes(**outcome)
    why = "*why      a missing baseline fails if CI is set, or*"
    if "failed" in outcome:
        result.stdout.fnmatch_lines([why])
    else:
        result.stdout.no_fnmatch_line(why)


def test_every_metric_must_be_gated_where_the_project_says_so(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=12)\n" + STEP)

    lenient = project.run("--override-ini=gpuperf_missing_baseline=fail")
    strict = project.run("--override-ini=gpuperf_missing_baseline=every-metric")

    lenient.assert_outcomes(passed=1)
    strict.assert_outcomes(failed=1)


def test_an_inconclusive_test_passes_with_a_warning_and_fails_when_strict(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.record()
    project.script({"*": {"step_ms": 12.0, "disturbance": "the GPU is throttling"}})

    lenient = project.run()
    strict = project.run("--gpuperf-strict")

    lenient.assert_outcomes(passed=1, warnings=1)
    assert lenient.outlines[-2] == "gpuperf: 1 inconclusive on scripted"
    lenient.stdout.fnmatch_lines(["*the GPU is throttling*"])
    strict.assert_outcomes(failed=1)


def test_a_budget_that_binds_elsewhere_is_not_checked_and_skips_with_the_reason(
    project: ScriptedProject,
) -> None:
    project.file('@gpuperf.budget(ms=12, mem_mb=1, syncs=0, on="*H200*")\n' + STEP)
    project.record()

    result = project.run("-rs")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["gpuperf: 1 passed on scripted; 3 metrics not checked"]
    )


def test_a_test_that_never_calls_gpuperf_fails(project: ScriptedProject) -> None:
    project.file(
        "def test_fixture(gpuperf): pass\n@gpuperf.budget(ms=1)\ndef test_mark(): pass\n"
    )

    result = project.run()

    result.assert_outcomes(failed=2)
    assert (
        "budget never judged: the test carries a gpuperf budget or takes the gpuperf "
        "fixture, and never called gpuperf(step); call it, or drop the budget"
    ) in result.outlines


def test_all_calls_of_a_test_are_judged_before_it_fails(
    project: ScriptedProject,
) -> None:
    project.file(
        """
def test_step(gpuperf):
    gpuperf(int, name="train", ms=9)
    gpuperf(int, name="eval", ms=12)
    gpuperf(int, ms=8)
"""
    )

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: 10.00 ms per step, limit 9.000 ms",
            "OVER LIMIT ms: 10.00 ms per step, limit 8.000 ms",
        ]
    )
    assert (
        "gpuperf: 2 failed (2 over limit), 1 passed on scripted; 6 metrics without baseline"
    ) in result.outlines


def test_a_torch_upgrade_that_moves_exact_metrics_is_one_verdict_for_the_run(
    project: ScriptedProject,
) -> None:
    project.file(STEP + "def test_other(gpuperf): gpuperf(int)\n")
    project.script({"software": {"torch": "2.12.0"}, "*": {"mem_mb": 100}})
    project.record()
    project.script({"software": {"torch": "2.13.0"}, "*": {"mem_mb": 150}})

    result = project.run()

    result.assert_outcomes(passed=2, warnings=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (
        "gpuperf: the run fails: torch 2.12.0 -> 2.13.0 moved exact metrics "
        "of 2 tests; check them, then accept with: gpuperf refresh "
        "--kind=all --accept-drift --device=scripted"
    ) in result.outlines


EIGHT = "\n".join(f"def test_{n}(gpuperf): gpuperf(int)" for n in range(8)) + "\n"


def test_a_slowdown_that_all_tests_share_is_one_verdict_and_no_failure(
    project: ScriptedProject,
) -> None:
    project.file(EIGHT)
    project.record()
    project.script({"*": {"step_ms": 10.6}})

    result = project.run()

    result.assert_outcomes(passed=8, warnings=8)
    assert (
        "gpuperf: all 8 tests +6.0 %, no sentinel was measured: the machine, or a "
        "common cause in code or a dependency"
    ) in result.outlines
    assert result.outlines[-2] == "gpuperf: 8 inconclusive on scripted"


def test_a_machine_that_its_sentinels_call_slower_is_not_blamed_on_the_code(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script({"*": {"step_ms": 10.0, "sentinel_ms": 1.0}})
    project.record()
    project.script({"*": {"step_ms": 10.4, "sentinel_ms": 1.04}})

    together = project.run()
    project.script({"*": {"step_ms": 10.4, "sentinel_ms": 1.0}})
    still = project.run()

    together.assert_outcomes(passed=1, warnings=1)
    together.stdout.fnmatch_lines(
        ["*environment: its sentinels say that this machine*"]
    )
    still.assert_outcomes(failed=1)


@pytest.mark.parametrize("better", [{"step_ms": 8.0}, {"mem_mb": 50}])
def test_an_improvement_passes_and_is_counted(
    project: ScriptedProject, better: dict[str, float]
) -> None:
    project.file(STEP)
    project.record()
    project.script({"*": better})

    lenient = project.run("--gpuperf-strict")

    lenient.assert_outcomes(passed=1)
    assert lenient.outlines[-2] == "gpuperf: 1 improved on scripted"


def test_every_verdict_is_explained_where_that_is_asked_for(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=20)\n" + STEP)
    project.record()

    silent = project.run()
    explained = project.run("--gpuperf-explain")

    silent.stdout.no_fnmatch_line("*upper 95 % bound*")
    start = explained.outlines.index("test_it.py::test_step")
    assert explained.outlines[start + 1 : start + 9] == [
        "    step_ms passed: the mean of the runs was compared with the limit; -50.0 %",
        "        (95 %: -50.2 % to -49.8 %), 1 fresh run, 8 stored, p = 1 of an excess by",
        "        chance, smallest detectable change 0.8 %",
        "    step_ms passed: the upper 95 % bound of the slowdown is below detect; +0.0 %",
        "        (95 %: -0.5 % to +0.5 %), tolerance 1.0 %, detect 3.0 %, 1 fresh run, 8",
        "        stored, smallest detectable change 1.7 %",
        "    peak_allocated_bytes passed: 100 MiB against 100 MiB stored",
        "    syncs passed: 0 against 0 stored",
    ]
