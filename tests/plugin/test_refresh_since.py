"""``gpuperf refresh --since``: what is proven is stored, and the rest is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from git_project import SCRIPTED
from git_project import GitProject

from pytest_gpuperf.cli import main


def test_what_is_proven_equal_or_better_is_stored_and_the_others_are_listed(
    project_of_commits: GitProject, capfd: pytest.CaptureFixture[str]
) -> None:
    project = project_of_commits
    project.tests(
        "def test_same(gpuperf): gpuperf(int)\ndef test_worse(gpuperf): gpuperf(int)\n"
    )
    project.scripts({"*": {"step_ms": 10.0, "syncs": 0}})
    project.commit()
    project.scripts(
        {
            "*": {"step_ms": 10.0, "syncs": 0},
            "test_worse": {"step_ms": 10.0, "syncs": 1},
        }
    )

    assert main(["refresh", SCRIPTED, "--since=HEAD"]) == 1

    said = " ".join(capfd.readouterr().out.split())
    assert said.endswith(
        "gpuperf: of 2 tests 1 proven equal or better; 1 for a person to decide "
        "test_it.py::test_worse: worse: syncs 0 -> 1"
    )
    (stored,) = Path("baselines").glob("*.json")
    assert list(json.loads(stored.read_text())["tests"]) == ["test_it.py::test_same"]


def test_a_lock_file_that_is_no_file_is_a_commit_that_is_none(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.commit()

    assert main(["refresh", SCRIPTED, "--since=none.txt"]) == 4

    assert "none.txt" in capsys.readouterr().err
