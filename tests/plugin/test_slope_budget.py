"""A step that takes longer with every step is told so, and by how much."""

from __future__ import annotations

from scripted_project import ScriptedProject


STEPS = """
@gpuperf.budget(slope_pct=5)
def test_grows(gpuperf):
    gpuperf(lambda: None)

@gpuperf.budget(slope_pct=5)
def test_steady(gpuperf):
    gpuperf(lambda: None)

@gpuperf.budget(slope_pct=5)
def test_throttled(gpuperf):
    gpuperf(lambda: None)
"""


def test_a_step_that_grows_fails_and_a_disturbed_one_is_not_blamed(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.script(
        {
            "test_grows": {"step_ms": 10.0, "growth": 1.001},
            "test_steady": {"step_ms": 10.0},
            "test_throttled": {"step_ms": 10.0, "disturbance": "throttled by heat"},
        }
    )

    result = project.run("--gpuperf")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT slope_pct: 1.105x, limit 1.050x",
            "  sure?    1.105x against 1.05x, over in each of 2 runs, and more than their*",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*UNDECIDED slope*",
            "*slope: slope_pct=5 was not judged: throttled by heat; *",
        ]
    )
