"""Runs that confirm a time read nothing but times, where all else is as it was."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


STEP = """
from pathlib import Path

@gpuperf.tolerance(ms="1%")
def test_step(gpuperf):
    gpuperf(lambda: None)
    found = gpuperf.measurement
    with Path("runs.txt").open("a") as file:
        print(int("latency_ms" in found.times), found.exact.get("syncs"), file=file)
"""

CALM = {"step_ms": [2.0, 2.18, 2.04, 1.98, 2.2, 2.08, 2.02, 2.1], "syncs": 1}


@pytest.fixture
def stored(project: ScriptedProject) -> ScriptedProject:
    """A baseline that scatters, so that one run decides nothing."""
    project.file(STEP)
    project.script({"*": CALM})
    project.record()
    (project.path / "runs.txt").unlink(missing_ok=True)
    return project


def runs_of(project: ScriptedProject) -> list[str]:
    return (project.path / "runs.txt").read_text().splitlines()


def test_the_first_run_reads_everything_and_the_others_the_times(
    stored: ScriptedProject,
) -> None:
    stored.script({"*": {"step_ms": [2.3, 2.32, 2.31, 2.1], "syncs": 1}})

    stored.run()

    first, *more = runs_of(stored)
    assert first == "1 1"
    assert set(more) == {"0 None"}
