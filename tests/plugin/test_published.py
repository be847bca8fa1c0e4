"""What CI services get: a summary, annotations, outputs, a comment, a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted_project import ScriptedProject


STEPS = "def test_a(gpuperf): gpuperf(int)\ndef test_b(gpuperf): gpuperf(int)\n"
A = "test_it.py::test_a"
RED = "### gpuperf: 1 test over limit (scripted)"
OVER = "@gpuperf.budget(ms=5, on='scripted')\n"


@pytest.fixture
def github(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """The folder with the files of a step on GitHub."""
    folder = tmp_path / "runner"
    folder.mkdir()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(folder / "output"))
    return folder


def comment(project: ScriptedProject) -> str:
    return (project.path / ".gpuperf" / "comment.md").read_text("utf-8")


def test_a_red_run_tells_the_page_of_its_pull_request(
    project: ScriptedProject, github: Path
) -> None:
    (github / "summary").write_text("## Before\n", "utf-8")
    project.file(OVER + STEPS)

    result = project.run()

    result.assert_outcomes(failed=1, passed=1)
    lines = (github / "summary").read_text("utf-8").splitlines()
    assert lines[:2] == ["## Before", RED]
    assert "\n".join([*lines[1:], ""]) == comment(project)
    folder = project.path.name
    assert (
        f"::error file={folder}/test_it.py,line=3,title=gpuperf%3A OVER LIMIT "
        f"ms::OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms%0A{A}"
    ) in result.outlines
    assert (github / "output").read_text("utf-8").splitlines() == [
        *("regressed=0", "over_budget=1", "inconclusive=0", "no_baseline=1"),
        *(
            "improved=0",
            "pass=0",
            "not_checked=0",
            "warned=0",
            "failed=1",
            "measured=2",
        ),
        f"pending={folder}/.gpuperf/pending-scripted.json",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "title"),
    [
        (["-k", "test_b"], 0, "1 test without baseline (scripted)"),
        (["-p", "xdist.plugin", "-n2"], 1, "1 test over limit (scripted)"),
        (["-k", "nothing"], 5, "no test was measured"),
        (["nosuch.py"], 4, "no result, pytest exited with 4"),
        (["-k", "plain"], 0, "no test was measured"),
    ],
    ids=["green", "red xdist", "empty", "wrong", "plain"],
)
def test_every_run_ends_as_without_pages_and_says_how(
    arguments: list[str],
    status: int,
    title: str,
    project: ScriptedProject,
    github: Path,
) -> None:
    if "xdist.plugin" in arguments:
        pytest.importorskip("xdist")
    project.file(OVER + STEPS + "def test_plain(): pass\n")

    result = project.run(*arguments)

    lines = (github / "summary").read_text("utf-8").splitlines()
    found = json.loads((project.path / ".gpuperf/results.json").read_text("utf-8"))
    assert result.ret == found["exit_status"] == status
    assert [x for x in lines if x.startswith("### ")] == [f"### gpuperf: {title}"]


def test_the_annotation_of_a_sync_stands_at_its_line(
    project: ScriptedProject, github: Path
) -> None:
    (project.path / "train.py").touch()
    project.file("@gpuperf.budget(syncs=0)\n" + STEPS)
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})

    result = project.run("-k", "test_a")

    assert (
        f"::error file={project.path.name}/train.py,line=12,title=gpuperf%3A OVER LIMIT "
        "syncs::OVER LIMIT syncs: 1 per step, limit 0%0Athe CPU waits here for the GPU; fix: "
        f"keep the value on the GPU, and read it every N steps%0A{A}"
    ) in result.outlines


def test_a_failure_that_was_expected_is_no_failure_there_either(
    project: ScriptedProject, github: Path
) -> None:
    project.file(f"@pytest.mark.xfail\n{OVER}{STEPS}")

    result = project.run()

    assert result.ret == pytest.ExitCode.OK
    assert "::error" not in result.stdout.str()
    lines = (github / "summary").read_text("utf-8").splitlines()
    assert lines[0] == "### gpuperf: 1 test without baseline, 1 xfailed (scripted)"
    assert any("expected to fail: OVER LIMIT ms: 10.00 ms" in x for x in lines)
    assert "failed=0\n" in (github / "output").read_text("utf-8")


def test_elsewhere_there_is_a_comment_and_nothing_on_the_terminal(
    project: ScriptedProject,
) -> None:
    project.file(OVER + STEPS)

    result = project.run()

    assert "::error" not in result.stdout.str()
    assert comment(project).startswith(f"{RED}\n")
    assert sorted(path.name for path in (project.path / ".gpuperf").iterdir()) == [
        *(".gitignore", "comment.md", "pending-scripted.json", "results.json"),
        "traces",
    ]


@pytest.mark.parametrize("source", [OVER + STEPS, "def test_plain(): pass\n"])
def test_pages_that_cannot_be_written_change_no_exit_code(
    source: str,
    project: ScriptedProject,
    github: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(github))
    monkeypatch.setenv("GITHUB_OUTPUT", str(github / "absent" / "output"))
    project.file(source)

    result = project.run()

    assert result.ret == int(source.startswith("@"))
    assert result.outlines[-2:] == [
        (
            f"gpuperf: {github}: cannot be written, is a directory; the results are not "
            "affected"
        ),
        (
            f"gpuperf: {github}/absent/output: cannot be written, no such file or "
            "directory; the results are not affected"
        ),
    ]


def test_a_summary_that_others_have_filled_is_left_alone(
    project: ScriptedProject, github: Path
) -> None:
    full = "x" * 999_000
    (github / "summary").write_text(full, "utf-8")
    project.file("def test_plain(): pass\n")

    result = project.run()

    assert result.outlines[-1] == (
        f"gpuperf: {github}/summary: the job's summary is full, nothing was added to it"
    )
    assert (github / "summary").read_text("utf-8") == full
