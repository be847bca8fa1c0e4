"""A real run as a page: from the scripted device to HTML."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main


STEPS = """
@gpuperf.budget(syncs=0)
def test_a(gpuperf): gpuperf(int)
def test_b(gpuperf): gpuperf(int, name="warm"); gpuperf(int, name="<cold>")
def test_c(gpuperf): raise OSError(__file__)
def test_d(gpuperf): pytest.skip("<no>")
"""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Names of this machine and its user that occur nowhere else."""
    monkeypatch.setenv("HOSTNAME", "host-of-mine")
    monkeypatch.setenv("USER", "user-of-mine")
    monkeypatch.setenv("HOME", "/home/user-of-mine")
    monkeypatch.setattr(socket, "gethostname", lambda: "host-of-mine")
    monkeypatch.setattr(getpass, "getuser", lambda: "user-of-mine")
    return "host-of-mine", "user-of-mine"


def page(project: ScriptedProject, *arguments: str) -> str:
    assert main(["report", *arguments]) == 0
    return Path(project.path / ".gpuperf/report.html").read_text("utf-8")


def test_a_run_becomes_a_page_without_a_name_of_this_machine(
    project: ScriptedProject, names: tuple[str, str]
) -> None:
    project.file(STEPS)
    project.record()
    project.script({"test_a": {"step_ms": 12.0, "syncs": 1}, "*": {"step_ms": 10.0}})
    project.run().assert_outcomes(failed=2, passed=1, skipped=1)

    text = page(project)

    assert "gpuperf: 2 of 4 tests failed on scripted" in text
    assert "test_it.py::test_b#&lt;cold&gt;" in text
    assert "failed: OSError: test_it.py" in text
    assert "gpuperf accept --accept-drift --only test_it.py::test_a" in text
    for name in (str(project.path), *names):
        assert name not in text
