"""Each enabled run leaves ``results.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from scripted_project import ScriptedProject

import pytest_gpuperf


PACKAGE = Path(pytest_gpuperf.__file__).parent
SCHEMA = json.loads((PACKAGE / "report" / "results_schema.json").read_text("utf-8"))

STEPS = """
def test_a(gpuperf): gpuperf(int)
def test_b(gpuperf): gpuperf(int)
def test_c(gpuperf): raise OSError(__file__)
def test_plain(): pass
"""
A, B, C = (f"test_it.py::test_{name}" for name in "abc")
TWO = "test_it.py::test_two"


def results(project: ScriptedProject) -> dict[str, Any]:
    text = (project.path / ".gpuperf" / "results.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    return found


def part(found: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [found[name] for name in names]


def test_a_run_leaves_its_verdicts_and_what_it_did_not_select(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.refresh("-k", "a or b")
    project.script({"test_a": {"step_ms": 12.0}, "*": {"step_ms": 10.0}})

    project.run("-k", "not test_b", "--gpuperf-strict").assert_outcomes(
        failed=2, passed=1, deselected=1
    )

    found = results(project)
    assert part(found, ["exit_status", "strict", "collected", "selected"]) == [
        1,
        True,
        [A, B, C],
        [A, C],
    ]
    assert found["hardware"] == {"kind": "scripted", "name": ""}
    assert found["counts"] == {"regressed": 1, "failed": 1}
    assert found["tests"][C]["headline"] == "OSError: test_it.py"
    assert str(project.path) not in json.dumps(found)


def samples(project: ScriptedProject, test: str) -> dict[str, Any]:
    found: dict[str, Any] = results(project)["tests"][test]["samples"]
    return found


def test_each_call_has_the_samples_of_each_run(project: ScriptedProject) -> None:
    project.file(
        STEPS + "def test_two(gpuperf):\n    gpuperf(int)\n    gpuperf(int, name='b')\n"
    )

    project.run("-k", "test_two or test_c or plain")

    run = {"step_ms": [10.0] * 20, "latency_ms": [10.0] * 7}
    assert samples(project, TWO) == {TWO: [run], f"{TWO}#b": [run]}


def test_a_test_that_was_run_again_has_the_samples_of_every_run(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.refresh("-k", "test_a")
    project.script({"*": {"step_ms": [12.0, 12.5]}})

    project.run("-k", "test_a")

    runs = samples(project, A)[A]
    assert [run["step_ms"][0] for run in runs] == [12.0, *[12.5] * (len(runs) - 1)]
    assert len(runs) > 1


def test_a_run_that_dies_leaves_an_unfinished_file_and_no_older_comment(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.run("-k", "test_a")
    project.pytester.makeconftest(
        "import os\ndef pytest_collection_finish(): os._exit(7)\n"
    )

    ended = project.pytester.runpytest_subprocess(
        "--gpuperf", "--gpuperf-device=scripted"
    )

    assert ended.ret == 7
    assert part(results(project), ["exit_status", "tests"]) == [None, {}]
    assert not (project.path / ".gpuperf" / "comment.md").exists()


def test_a_plugin_that_raises_at_the_end_costs_no_results(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.pytester.makeconftest(
        "def pytest_terminal_summary(config):\n"
        "    if config.getoption('gpuperf'): raise OSError\n"
    )

    ended = project.pytester.runpytest_subprocess(
        "--gpuperf", "--gpuperf-device=scripted", "-k", "test_a"
    )

    found = results(project)
    assert (ended.ret, found["exit_status"]) == (1, 1)
    assert found["counts"] == {"no baseline": 1}
    assert list(samples(project, A)) == [A]


def test_the_commit_is_recorded(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    monkeypatch.setenv("GITHUB_SHA", "1f2e")
    project.file(STEPS)

    project.run("-k", "plain")

    assert results(project)["commit"] == "1f2e"


def test_an_older_run_does_not_speak_for_one_that_could_not_begin(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)
    project.run("-k", "test_a")

    ended = project.run("--gpuperf-seconds=soon")

    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / ".gpuperf" / "results.json").exists()
