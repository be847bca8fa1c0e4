"""A project that an earlier version recorded is measured again: every verdict is as then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.baselines.format import dumps, loads


WRITTEN = Path(__file__).parents[1] / "data" / "written_before" / "scripted"


@pytest.fixture
def recorded(project: ScriptedProject) -> ScriptedProject:
    """The project with the baseline and the script that there were."""
    shutil.copy(WRITTEN / "project.py", project.path / "test_it.py")
    shutil.copy(WRITTEN / "script.json", project.path / "script.json")
    shutil.copytree(WRITTEN / "baselines", project.path / "baselines")
    return project


def judged(results: Path) -> dict[str, Any]:
    """All verdicts with their numbers, by call; which one heads a failure is no number."""
    raw = json.loads(results.read_text(encoding="utf-8"))
    return {
        call["test"]: {
            (verdict["metric"], verdict["outcome"]): {
                name: value for name, value in verdict.items() if name in SAID
            }
            for verdict in call["verdicts"]
        }
        for test in raw["tests"].values()
        for call in test["verdicts"]
    }


SAID = {"metric", "outcome", "now", "baseline", "limit", "evidence"}


def test_a_run_against_an_older_baseline_has_the_same_verdicts_and_numbers(
    recorded: ScriptedProject,
) -> None:
    recorded.run()

    new = judged(recorded.path / ".gpuperf" / "results.json")
    assert new == judged(WRITTEN / "left" / "results.json")


def test_a_refresh_of_an_older_baseline_leaves_what_did_not_move(
    recorded: ScriptedProject,
) -> None:
    before = dumps(loads(recorded.baseline.read_text(encoding="utf-8"), "it"))

    done = recorded.refresh("-k", "steady or named or noisy", which="all")

    assert done.ret == pytest.ExitCode.OK
    assert recorded.baseline.read_text(encoding="utf-8") == before
