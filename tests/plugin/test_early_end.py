"""A gate's run ends early once it shows that its step is no slower than its baseline."""

from __future__ import annotations

import json

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

STEP = """
from pathlib import Path

def test_step(gpuperf):
    gpuperf(lambda: None)
    with Path("rounds.txt").open("a") as file:
        print(gpuperf.measurement.times["step_ms"].samples, file=file)
"""


def rounds_of(project: ScriptedProject, *arguments: str) -> set[str]:
    """Run the suite and return how many rounds its runs had."""
    written = project.pytester.path / "rounds.txt"
    written.unlink(missing_ok=True)
    project.run(*arguments).assert_outcomes(passed=1)
    return set(written.read_text().split())


def test_a_gate_times_a_quarter_of_the_rounds_and_a_refresh_all(
    project: ScriptedProject,
) -> None:
    project.file(STEP)

    recorded = rounds_of(project, "--gpuperf-update=all")
    gated = rounds_of(project)
    again = rounds_of(project, "--gpuperf-update=all")

    assert (recorded, gated, again) == ({"20"}, {"5"}, {"20"})


def test_what_ends_early_is_known_as_such_where_it_is_to_be_evidence(
    project: ScriptedProject,
) -> None:
    project.file(STEP)

    def judged(*arguments: str) -> dict[str, object]:
        project.run(*arguments).assert_outcomes(passed=1)
        (pending,) = (project.path / ".gpuperf").glob("pending-*.json")
        (test,) = json.loads(pending.read_text())["tests"].values()
        found: dict[str, object] = test["judged"]
        return found

    recorded = judged("--gpuperf-update=all")
    gated = judged()
    added = judged("--gpuperf-update=evidence")

    marks = [found.get("ends_early", False) for found in (recorded, gated, added)]
    assert marks == [False, True, False]
