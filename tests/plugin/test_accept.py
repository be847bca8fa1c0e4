"""Red in CI, accepted on a desk: the way of a baseline as the how-to tells it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main


STEPS = "def test_a(gpuperf): gpuperf(int)\ndef test_b(gpuperf): gpuperf(int)\n"
A, B = "test_it.py::test_a", "test_it.py::test_b"
PENDING = "pending-scripted.json"


def typed(
    command: str, capsys: pytest.CaptureFixture[str], status: int = 0
) -> list[str]:
    capsys.readouterr()
    assert main(command.split()[1:]) == status
    return capsys.readouterr().out.splitlines()


def times(project: ScriptedProject) -> dict[str, Any]:
    return {
        test: entry["runs"][0]["times"]["step_ms"]["q25"]
        for test, entry in project.entries().items()
    }


def test_what_was_red_in_ci_is_accepted_from_its_artefact_and_green_again(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    project.file(STEPS)
    project.record()
    project.script({"test_a": {"step_ms": 12.0}, "*": {"step_ms": 10.0}})
    monkeypatch.setenv("CI", "true")
    project.run().assert_outcomes(failed=1, passed=1)
    artefact = tmp_path / "downloaded"
    shutil.move(project.path / ".gpuperf", artefact)
    monkeypatch.delenv("CI")
    monkeypatch.chdir(project.path)

    accept = f"gpuperf accept {artefact / PENDING}"
    refused = typed(accept, capsys, status=1)
    assert refused[:3] == [
        "not accepted, too far from the last accepted value:",
        "accepted       now    drift     allowed  metric   test",
        f"10.00 ms  12.00 ms  +20.0 %  detect 3 %  step_ms  {A}",
    ]
    assert times(project) == {A: 10.0, B: 10.0}

    assert typed(f"{accept} --dry-run", capsys)[:3] == refused[:3]
    taken = typed(f"{accept} --accept-drift --only {A}", capsys)
    assert taken == [
        "accepted into baselines/scripted.json:",
        "     old       new   change  metric   test",
        f"10.00 ms  12.00 ms  +20.0 %  step_ms  {A}",
        "gpuperf: 1 accepted",
    ]
    assert times(project) == {A: 12.0, B: 10.0}
    assert project.entries()[A]["anchor"]["step_ms"] == 12.0
    monkeypatch.setenv("CI", "true")
    project.run().assert_outcomes(passed=2)


def judged(project: ScriptedProject) -> Mapping[str, Any]:
    path = project.path / ".gpuperf" / PENDING
    tests = json.loads(path.read_text("utf-8"))["tests"]
    return {test: entry["judged"] for test, entry in tests.items()}


def test_what_is_pending_says_how_it_was_judged(project: ScriptedProject) -> None:
    project.file(
        "@gpuperf.tolerance(ms='5% and 1 ms', detect='9%')\n"
        "@gpuperf.budget(ms=11, on='scripted')\n" + STEPS
    )
    project.refresh("-k", "test_a")
    project.script({"test_a": {"step_ms": 12.0}, "*": {"step_ms": 10.0}})

    project.run()

    none = ["no baseline"]
    assert judged(project) == {
        A: {
            "outcomes": {
                "step_ms": ["over budget", "regressed"],
                "peak_allocated_bytes": ["pass"],
                "syncs": ["pass"],
            },
            "tolerance": {"ratios": {"ms": 0.05}, "floors": {"ms": 1}, "detect": 0.09},
        },
        B: {
            "outcomes": {
                "step_ms": none,
                "peak_allocated_bytes": none,
                "syncs": none,
            }
        },
    }
