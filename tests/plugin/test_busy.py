"""A budget of the GPU's share, and the lines at which it has nothing to do, from the mark to the terminal."""

from __future__ import annotations

from typing import Any

from scripted_project import ScriptedProject


STEP = """
@gpuperf.budget(busy_pct=85)
def test_step(gpuperf):
    gpuperf(lambda: None)
"""

READ = [["work", 8000], ["launch", 40, 500], ["item"]]
"""A GPU that has nothing to do while the host prepares its next step."""


def scheduled(*schedule: list[Any], step_ms: float = 28.0) -> dict[str, object]:
    return {"*": {"step_ms": step_ms, "schedule": {"step": list(schedule)}}}


def test_a_gpu_that_waits_for_the_host_fails_and_names_the_line(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script(scheduled(*READ))

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "BELOW LIMIT busy_pct: 71.43 %, limit at least 85.00 %",
            "  --> train.py:21 in step: 29 % of the step, in which the GPU has nothing to do",
            "  --> train.py:21 in step: aten::_local_scalar_dense (cudaStreamSynchronize), 1",
            "           per step, *",
            "  fix      *",
            "  sure?    71.43 % against 85 %, below in each of 2 runs, and more than their",
        ],
        consecutive=True,
    )


def test_the_explanation_says_where_the_gpu_has_nothing_to_do(
    project: ScriptedProject,
) -> None:
    project.file(STEP.replace("85", "60"))
    project.script(scheduled(*READ))

    result = project.run("--gpuperf-explain")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "    busy_pct passed: 71.43 % against 60 %",
            "    --> train.py:21 in step: 29 % of the step, in which the GPU has nothing to do",
        ],
        consecutive=True,
    )


def test_a_refresh_keeps_the_share_and_gates_nothing_by_it(
    project: ScriptedProject,
) -> None:
    project.file(STEP.replace("busy_pct=85", "busy_pct=20"))
    project.script(scheduled(*READ))
    project.record()
    project.script(scheduled(*READ, ["work", 10_000]))

    result = project.run()

    result.assert_outcomes(passed=1)
    stored = project.entries()["test_it.py::test_step"]["runs"][0]["times"]  # type: ignore[index]
    assert round(stored["busy_pct"]["q50"], 2) == 71.43
