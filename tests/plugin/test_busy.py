"""A budget of the GPU's share, and what a step waits for, from the mark to the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from scripted_project import ScriptedProject

from pytest_gpuperf import __file__ as package


SCHEMA = json.loads(
    (Path(package).parent / "report" / "json" / "results_schema.json").read_text(
        "utf-8"
    )
)

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
            "BELOW LIMIT busy_pct: 71.40 %, limit at least 85.00 %",
            "  --> train.py:21 in step: aten::_local_scalar_dense (cudaStreamSynchronize), 1",
            "           per step, *",
            "  fix      *",
            "  waits    for syncs at train.py:21 in step, 29 % of the step",
            "  sure?    71.4 % against 85 %, below in each of 2 runs, and more than their",
        ],
        consecutive=True,
    )


def test_a_gpu_that_is_busy_passes_and_the_explanation_says_with_what(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script(scheduled(*READ[:-1], step_ms=20.0))

    result = project.run("--gpuperf-explain")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "    busy_pct passed: 100 % against 85 %",
            "    where the time of a step goes:",
            "      100 %  the GPU: kernels compute; only faster kernels, or fewer, make the",
        ],
        consecutive=True,
    )


def test_the_diagnosis_is_left_for_other_programs(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script(scheduled(*READ))

    project.run()

    written = (project.path / ".gpuperf" / "results.json").read_text()
    found = json.loads(written)
    jsonschema.validate(found, SCHEMA)
    (call,) = found["tests"]["test_it.py::test_step"]["verdicts"]
    assert [part["bottleneck"] for part in call["diagnosis"]["parts"]] == [
        "syncs",
        "gpu",
    ]
    assert call["diagnosis"]["parts"][0]["location"]["line"] == 21


def test_a_refresh_keeps_the_share_and_gates_nothing_by_it(
    project: ScriptedProject,
) -> None:
    project.file(STEP.replace("busy_pct=85", "busy_pct=20"))
    project.script(scheduled(*READ))
    project.refresh()
    project.script(scheduled(*READ, ["work", 10_000]))

    result = project.run()

    result.assert_outcomes(passed=1)
    stored = project.entries()["test_it.py::test_step"]["runs"][0]["times"]  # type: ignore[index]
    assert stored["busy_pct"]["q50"] == 71.4


def test_a_device_without_kernels_does_not_judge_it(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.script({"*": {"step_ms": 2.0}})

    result = project.run()

    result.stdout.fnmatch_lines(
        ["not judged: busy_pct *the scripted device does not measure busy_pct"]
    )
