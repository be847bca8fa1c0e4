"""A failure for memory is explained: who held it, and a snapshot of the allocator."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.measure.memory import read_snapshot


LARGE = """
@gpuperf.budget(mem_mb=100)
def test_large(gpuperf):
    gpuperf(int, name="a step")

@gpuperf.budget(ms=5, mem_mb=500)
def test_slow(gpuperf):
    gpuperf(int)
"""

MIB = 2**20


def snapshot_of(project: ScriptedProject, file: str = "") -> dict[str, object]:
    """What the allocator did, asked by a line of *file*, else of the project's model."""
    model = file or str(project.path / "model.py")
    frames = [{"filename": model, "line": 7, "name": "f"}]
    trace = [
        {"action": "alloc", "addr": 64, "size": 150 * MIB, "frames": frames},
        {"action": "free_requested", "addr": 64, "size": 150 * MIB, "frames": []},
    ]
    old = {"address": 0, "size": 50 * MIB, "state": "active_allocated"}
    segment = {"address": 0, "blocks": [old]}
    return {"segments": [segment], "device_traces": [trace]}


@pytest.fixture
def large(project: ScriptedProject) -> ScriptedProject:
    project.file(LARGE)
    seen = {"step_ms": 10, "mem_mb": 200, "snapshot": snapshot_of(project)}
    project.script({"test_large#a step": seen, "test_slow": seen})
    return project


def test_a_step_that_takes_too_much_is_recorded_and_its_lines_are_named(
    large: ScriptedProject,
) -> None:
    result = large.run()

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT mem_mb: 200.0 MiB, limit 100.0 MiB",
            "  --> model.py:7 in f: in use at the peak: 150.0 MiB in 1 block",
            "  --> memory from before the step: in use at the peak: 50.00 MiB in 1 block",
            "  sure     *in each of 3 runs",
            "*for pytorch.org/memory_viz: .gpuperf/memory-test_it.py-test_large-a-step-*",
        ],
    )
    (saved,) = (large.path / ".gpuperf").glob("*.pickle")  # and none of the slow one
    assert saved.name == "memory-test_it.py-test_large-a-step-14e86d84.pickle"
    assert read_snapshot(saved) == snapshot_of(large, "model.py")


def test_what_a_refresh_accepts_is_not_recorded(large: ScriptedProject) -> None:
    large.file(LARGE.replace("mem_mb=100", "mem_mb=500"))

    large.refresh(which="all").assert_outcomes(passed=1, failed=1)

    assert not list((large.path / ".gpuperf").glob("*.pickle"))
