"""The statements of ``SECURITY.md``: what holds each of them."""

from __future__ import annotations

import ast
import os
import pickle
import re
from pathlib import Path
from typing import Final

import pytest
from documents import ROOT

from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.memory import read_snapshot
from pytest_gpuperf.model.environment import DeviceKind, Hardware


PAGE: Final = " ".join((ROOT / "SECURITY.md").read_text("utf-8").split())

HELD: Final = {
    "Reading these runs nothing": (
        "tests/test_security.py::test_nothing_is_read_by_what_can_run_code",
    ),
    "a wrong file is refused in a sentence": (
        "tests/faults/test_bad_files.py::test_no_shape_of_a_file_breaks_the_command_that_reads_it",
    ),
    "read by a reader that builds no objects": (
        "tests/test_security.py::test_a_snapshot_that_names_a_function_is_refused",
    ),
    "No file decides where another one is written": (
        "tests/test_security.py::test_the_name_of_hardware_is_no_path",
    ),
    "Links in the place of `.gpuperf`": (
        "tests/faults/test_planted_links.py::test_whatever_writes_refuses_a_link_as_the_folder",
    ),
    "FIFOs are refused": (
        "tests/faults/test_bad_files.py::test_what_is_no_file_is_refused_and_never_waited_for",
    ),
    "forbids the page every script but its own": (
        "tests/unit/report/test_html_page.py::test_nothing_points_out_of_the_page",
    ),
    "printed as text": (
        "tests/faults/test_hostile_names.py::test_a_command_prints_nothing_but_text",
    ),
    "known secrets are masked": (
        "tests/faults/test_secrets.py::test_a_run_leaves_a_mask_and_no_secret",
    ),
    "source lines of the project alone": (
        "tests/unit/cli/test_cli_report.py::test_no_file_outside_of_the_project_is_read",
    ),
    "run on `pull_request`, never on `pull_request_target`": (
        "tests/test_workflows.py::test_a_workflow_that_is_copied_is_no_risk",
    ),
    "checks out nothing, installs nothing": (
        "tests/test_workflows.py::test_a_planted_risk_is_seen",
    ),
    "asks GitHub which pull request": (
        "tests/test_workflows.py::test_a_run_with_nothing_to_say_comments_nowhere",
    ),
}
"""Words of the page, and the tests of what they say."""

RUN_CODE: Final = {
    *("eval", "exec", "marshal.load", "marshal.loads", "pickle.load", "pickle.loads"),
    *("shelve.open", "torch.load", "yaml.load", "yaml.unsafe_load"),
}
MAY_RUN: Final = {"cli/script.py": {"exec"}}
"""Modules that run what the user named as a program."""


@pytest.mark.parametrize("words", HELD)
def test_a_statement_of_the_page_is_held_by_tests_that_exist(words: str) -> None:
    assert words in PAGE
    for test in HELD[words]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test


def called(file: Path) -> set[str]:
    """Names of the functions that *file* calls, as they are written."""
    tree = ast.parse(file.read_text("utf-8"))
    return {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}


def test_nothing_is_read_by_what_can_run_code() -> None:
    package = ROOT / "pytest_gpuperf"
    found = {
        str(file.relative_to(package)): risky
        for file in package.rglob("*.py")
        if (risky := called(file) & RUN_CODE)
    }

    assert found == MAY_RUN


def test_a_snapshot_that_names_a_function_is_refused(tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "it was run"),)

    file = tmp_path / "memory.pickle"
    file.write_bytes(pickle.dumps({"device_traces": [Planted()]}))

    with pytest.raises(UsageError, match=r"a reference to posix\.mkdir"):
        read_snapshot(file)
    assert not (tmp_path / "it was run").exists()


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/root/x", "a\0b", "..\\x", "é/."]
)
def test_the_name_of_hardware_is_no_path(name: str) -> None:
    key = Hardware(kind=DeviceKind.CPU, name=name).key

    assert re.fullmatch(r"[a-z0-9-]+", key)
    assert path_of(Path("b"), Hardware(kind=DeviceKind.CPU, name=name)).parent == Path(
        "b"
    )


def test_no_file_of_this_project_gives_a_strangers_code_a_token() -> None:
    files = [*(ROOT / "docs").rglob("*.*"), *(ROOT / ".github").rglob("*.yml")]
    texts = {f: f.read_text("utf-8") for f in files if f.suffix in {".md", ".yml"}}

    assert [file for file, text in texts.items() if "pull_request_target" in text] == []
