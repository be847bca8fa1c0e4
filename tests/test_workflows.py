"""The files in ``docs/ci`` are what GitHub and GitLab read, and what this project writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from documents import DOCUMENTS
from documents import ROOT
from documents import blocks_of

from pytest_gpuperf.model.results import Head
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.plugin.options import OPTIONS
from pytest_gpuperf.plugin.outputs import QUALITY
from pytest_gpuperf.report.ci.github import outputs


yaml = pytest.importorskip("yaml")

FOLDER = ROOT / "docs" / "ci"
WORKFLOWS = ("gpu-runner.yml", "pretend.yml")
FILES = ("action.yml", "gitlab.yml", *WORKFLOWS)


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


def test_there_is_no_file_that_nobody_looks_at() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.yml")) == sorted(FILES)


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


PINNED = {
    "actions/checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "actions/upload-artifact": "bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
    "actions/download-artifact": "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1",
    "actions/setup-python": "ece7cb06caefa5fff74198d8649806c4678c61a1 # v6.3.0",
    "benchmark-action/github-action-benchmark": (
        "a60cea5bc7b49e15c1f58f411161f99e0df48372 # v1.22.0"
    ),
}
"""The commits that these tags had in the actions' own repositories."""

SAME_REPOSITORY = "github.event.pull_request.head.repo.full_name == github.repository"

DOCUMENTED = {
    **{f"docs/ci/{name}": (FOLDER / name).read_text("utf-8") for name in WORKFLOWS},
    **{
        f"{document.name} {block.name}": block.text
        for document in DOCUMENTS
        for block in blocks_of(document.read_text("utf-8"))
        if block.kind == "yaml" and block.name
    },
}
"""Texts of all workflows that somebody may copy."""


def risks(text: str) -> set[str]:
    """Return what could go wrong with a workflow when somebody means it to."""
    workflow = yaml.safe_load(text)
    found = set(map(unpinned, re.findall(r"uses: *(.+)", text))) - {None}
    if workflow.get("permissions") != {"contents": "read"}:
        found.add("may write, or does not say what it may")
    for job in workflow["jobs"].values():
        found.update(risks_of_job(job, workflow[True]))  # YAML's reading of "on"
    return found


def unpinned(used: str) -> str | None:
    if used.startswith("./"):
        return None
    action, _, version = used.partition("@")
    return None if PINNED.get(action) == version else f"{action} is not pinned"


def risks_of_job(job: dict[str, Any], on: Any) -> set[str]:
    steps = job["steps"]
    ran = " ".join(str(step.get("run", "")) for step in steps)
    found = set()
    is_ours = "pull_request" in on and "self-hosted" in job["runs-on"]
    if is_ours and SAME_REPOSITORY not in str(job.get("if")):
        found.add("a fork's code runs here")
    if "timeout-minutes" not in job:
        found.add("may run for ever")
    if any(
        "checkout@" in step.get("uses", "")
        and (step.get("with") or {}).get("persist-credentials") is not False
        for step in steps
    ):
        found.add("leaves a token to the tests")
    if "write" in str(job.get("permissions")) and re.search(r"\bpytest\b|\bpip\b", ran):
        found.add("runs tests with a token that may write")
    if "${{ steps." in ran or "${{ github." in ran:
        found.add("puts what others wrote into a script")
    return found


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_workflow_that_is_copied_is_no_risk(name: str) -> None:
    assert risks(DOCUMENTED[name]) == set()


def test_there_are_workflows_to_look_at() -> None:
    assert len(DOCUMENTED) >= len(WORKFLOWS) + 4
    assert "uses: actions/upload-artifact@" + PINNED["actions/upload-artifact"] in (
        FOLDER / "action.yml"
    ).read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "risk"),
    [
        (f"@{PINNED['actions/checkout']}", "@v7", "actions/checkout is not pinned"),
        ("3d3c42e5", "0d3c42e5", "actions/checkout is not pinned"),
        ("# v7.0.1", "# v7.0.0", "actions/checkout is not pinned"),
        (f"if: {SAME_REPOSITORY}", "if: true", "a fork's code runs here"),
        ("contents: read", "contents: write", "may write, or does not say what it may"),
        (
            "permissions:\n  contents: read\n",
            "",
            "may write, or does not say what it may",
        ),
        ("persist-credentials: false", "lfs: true", "leaves a token to the tests"),
        ("timeout-minutes: 60", "name: gate", "may run for ever"),
        (
            "    timeout-minutes: 60",
            "    timeout-minutes: 60\n    permissions: write-all",
            "runs tests with a token that may write",
        ),
        (
            "- run: pip",
            "- run: echo ${{ github.head_ref }}\n      - run: pip",
            "puts what others wrote into a script",
        ),
    ],
)
def test_a_planted_risk_is_seen(old: str, new: str, risk: str) -> None:
    text = DOCUMENTED["gate.md .github/workflows/gpuperf.yml"]
    assert old in text

    assert risks(text.replace(old, new)) == {risk}


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
