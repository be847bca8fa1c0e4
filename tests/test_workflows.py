"""The files in ``docs/ci`` are what GitHub and GitLab read, and what this project writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

from pytest_gpuperf.model.results import Head
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.options import OPTIONS
from pytest_gpuperf.published import QUALITY
from pytest_gpuperf.report.github import outputs


yaml = pytest.importorskip("yaml")

FOLDER = ROOT / "docs" / "ci"
WORKFLOWS = ("gpu-runner.yml", "pretend.yml")
FILES = ("action.yml", "gitlab.yml", *WORKFLOWS)


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


def test_there_is_no_file_that_nobody_looks_at() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_option_that_is_given_exists(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")

    given = set(re.findall(r"--gpuperf[a-z-]*", text))

    assert given <= {option.flag for option in OPTIONS}


def test_the_action_hands_on_outputs_that_a_run_writes() -> None:
    head = Head(
        version="", strict=False, fail_on_improvement=False, missing_baseline="warn"
    )
    written = {line.split("=")[0] for line in outputs(Results(head=head), "").split()}

    asked = {
        re.fullmatch(r"\$\{\{ steps\.gate\.outputs\.(\w+) \}\}", output["value"])[1]
        for output in read("action.yml")["outputs"].values()
    }

    assert asked <= written


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_and_ends(name: str) -> None:
    workflow = read(name)

    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_gives_the_action_inputs_that_it_has(name: str) -> None:
    (step,) = (
        step
        for job in read(name)["jobs"].values()
        for step in job["steps"]
        if step.get("uses") == "./.github/actions/gpuperf"
    )

    assert set(step["with"]) <= set(read("action.yml")["inputs"])


def test_gitlab_is_given_the_report_that_is_written() -> None:
    reports = read("gitlab.yml")["gpuperf"]["artifacts"]["reports"]

    assert reports["codequality"] == f".gpuperf/{QUALITY}"


def repository(path: Path) -> Path:
    """A repository that has copied the files to where they belong."""
    github = path / ".github"
    (github / "workflows").mkdir(parents=True)
    (github / "actions" / "gpuperf").mkdir(parents=True)
    (path / ".git").mkdir()
    for name in WORKFLOWS:
        shutil.copy(FOLDER / name, github / "workflows" / name)
    shutil.copy(FOLDER / "action.yml", github / "actions" / "gpuperf" / "action.yml")
    labels = "self-hosted-runner:\n  labels: [gpu]\n"
    (github / "actionlint.yaml").write_text(labels, "utf-8")
    return path


def linted(path: Path) -> str:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    command = [program, "-no-color", "-shellcheck=", "-pyflakes="]
    return subprocess.run(
        command, cwd=path, capture_output=True, check=False, text=True
    ).stdout


def test_actionlint_finds_nothing_to_say(tmp_path: Path) -> None:
    assert linted(repository(tmp_path)) == ""


def test_actionlint_would_see_an_input_that_the_action_does_not_have(
    tmp_path: Path,
) -> None:
    path = repository(tmp_path) / ".github" / "workflows" / WORKFLOWS[1]
    path.write_text(path.read_text("utf-8").replace("artifact:", "artefact:"), "utf-8")

    assert 'input "artefact" is not defined in action' in linted(tmp_path)


@pytest.mark.parametrize("arguments", ["", "-x  --gpuperf-device=cpu"])
def test_the_action_splits_its_arguments_and_keeps_the_exit_code(
    arguments: str, tmp_path: Path
) -> None:
    (step, _) = read("action.yml")["runs"]["steps"]
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n', "utf-8")
    python.chmod(0o755)

    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],  # noqa: S607
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "GPUPERF_ARGUMENTS": arguments,
        },
        capture_output=True,
        check=False,
        text=True,
    )

    assert ended.returncode == 3
    assert ended.stdout.split() == ["-m", "pytest", "--gpuperf", *arguments.split()]
