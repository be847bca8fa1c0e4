"""A test that failed leaves a trace of a few steps, linked from its failure."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from builders import entries_in
from scripted_project import ScriptedProject

from pytest_gpuperf.runner.evidence import MOST_TRACES


SLOW = """
def test_slow(gpuperf):
    gpuperf(int, name="train", ms=5)
    gpuperf(int, name="ok", ms=12)
@gpuperf.budget(ms=12)
def test_ok(gpuperf): gpuperf(int)
"""


def traces(project: ScriptedProject) -> list[Path]:
    return sorted((project.path / ".gpuperf" / "traces").glob("*"))


def events_of(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, each of which a viewer can place."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events: list[dict[str, Any]] = document["traceEvents"]
    for event in events:
        assert event["ph"] in set("BEXisftMCbne")
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
            assert {"pid", "tid", "name"} <= set(event)
    return events


def test_a_failure_names_its_trace_and_a_pass_has_none(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    project.file(SLOW)

    result = project.run()

    result.assert_outcomes(failed=1, passed=1)
    (trace,) = traces(project)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms",
            f"*ui.perfetto.dev: .gpuperf/traces/{trace.name}*",
        ],
        consecutive=False,
    )
    assert trace.name.startswith("test_it.py-test_slow-train-")
    names = [event["name"] for event in events_of(trace)]
    assert names.count("gpuperf.step") == 3
    found = json.loads((project.path / ".gpuperf" / "results.json").read_text())
    call, passed = found["tests"]["test_it.py::test_slow"]["verdicts"]
    assert call["trace"] == f".gpuperf/traces/{trace.name}"
    assert not passed.get("trace")
    project.run("-k", "ok")  # which removes the traces of the last run
    assert traces(project) == []


def test_a_run_that_only_traces_is_no_run_of_the_verdict(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.record()
    project.script({"*": {"step_ms": 12.0}})

    project.run().assert_outcomes(failed=1)

    pending = entries_in(project.path / ".gpuperf" / "pending-scripted.json")
    verdict = json.loads((project.path / ".gpuperf" / "results.json").read_text())
    (call,) = verdict["tests"]["test_it.py::test_step"]["verdicts"]
    assert call["runs"] == len(pending["test_it.py::test_step"]["runs"])
    assert call["trace"]


def test_only_the_worst_are_traced(project: ScriptedProject) -> None:
    numbers = range(MOST_TRACES + 2)
    tests = (
        f"@gpuperf.budget(ms=1)\ndef test_{n}(gpuperf): gpuperf(int)" for n in numbers
    )
    project.file("\n".join(tests))
    project.script({f"test_{n}": {"step_ms": 2.0 + n} for n in numbers})

    project.run().assert_outcomes(failed=len(numbers))

    assert [path.name.split("-")[1] for path in traces(project)] == [
        f"test_{n}" for n in list(numbers)[2:]
    ]


def test_what_shares_a_process_with_a_failure_is_not_traced(
    project: ScriptedProject,
) -> None:
    project.file(SLOW)

    project.run("-o", "gpuperf_isolation=module").assert_outcomes(failed=1, passed=1)

    assert len(traces(project)) == 1


def test_a_test_that_cannot_be_run_again_fails_without_a_trace(
    project: ScriptedProject,
) -> None:
    project.file(
        """
import pathlib
RUN = pathlib.Path("runs.txt")
@gpuperf.budget(ms=5)
def test_slow(gpuperf):
    with RUN.open("a") as file: file.write("x")
    assert len(RUN.read_text()) <= 3
    gpuperf(int)
"""
    )

    first = project.run()
    runs = len((project.path / "runs.txt").read_text())

    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(["OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms"])
    assert len(traces(project)) == (1 if runs <= 3 else 0)
