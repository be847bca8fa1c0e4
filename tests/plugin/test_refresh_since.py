"""``gpuperf refresh --since``: what is proven is stored, and the rest is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from git_project import SCRIPTED
from git_project import GitProject

from pytest_gpuperf.cli import main


def test_what_is_the_same_or_better_is_stored_and_the_others_are_listed(
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

    moved = ["-o", "gpuperf_baselines=perf"]
    assert main(["refresh", SCRIPTED, "--since=HEAD", "test_it.py", *moved]) == 1

    said = " ".join(capfd.readouterr().out.split())
    assert said.endswith(
        "gpuperf: of 2 tests 1 the same or better in training, counts, bytes and time; 1 "
        "for a person to decide test_it.py::test_worse: worse: syncs 0 -> 1 "
        f"accept gpuperf refresh --accept-drift {SCRIPTED} -o gpuperf_baselines=perf "
        "test_it.py::test_worse"
    )
    assert not Path("baselines").exists()
    (stored,) = Path("perf").glob("*.json")
    assert list(json.loads(stored.read_text())["tests"]) == ["test_it.py::test_same"]


def test_a_lock_file_that_is_no_file_is_a_commit_that_is_none(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.commit()

    assert main(["refresh", SCRIPTED, "--since=none.txt"]) == 4

    assert "none.txt" in capsys.readouterr().err


def test_json_tells_of_the_folder_that_an_option_of_pytest_names(
    project_of_commits: GitProject, capfd: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.tests("def test_same(gpuperf): gpuperf(int)\n")
    project_of_commits.script(step_ms=10.0)

    moved = "gpuperf_baselines=perf"
    assert main(["refresh", SCRIPTED, "--json", "-o", moved, "test_it.py"]) == 0

    (file,) = json.loads(capfd.readouterr().out)["files"]
    assert file["baselines"] == "perf/scripted.json"
