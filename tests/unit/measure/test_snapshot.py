"""Snapshots of torch's allocator: recorded, read without running them, explained."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices.cuda.memory import record_allocations
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.memory import EXPLAINED_PEAKS, held_at_peak, read_snapshot
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase


TORCH = "/venv/lib/python3.11/site-packages/torch/nn/functional.py"


def event(action: str, address: int, size: int, line: int = 1) -> dict[str, Any]:
    frames = [
        {"filename": TORCH, "line": 9, "name": "linear"},
        {"filename": "/p/train.py", "line": line, "name": "step"},
        {"filename": "/p/test_it.py", "line": 99, "name": "test"},
    ]
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "frames": frames if action == "alloc" else [],
    }


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": 512, "requested_size": size, "state": state}


def snapshot(
    trace: list[dict[str, Any]], blocks: list[dict[str, Any]]
) -> dict[str, Any]:
    segment = {"device": 0, "address": 0, "total_size": 4096, "blocks": blocks}
    return {"segments": [segment], "device_traces": [trace, []]}


def at(line: int) -> Location:
    return Location(file="/p/train.py", line=line, function="step")


def held(line: int | None, size: int, blocks: int = 1) -> Finding:
    location = None if line is None else at(line)
    return Finding(
        kind=FindingKind.MEMORY,
        op=None,
        location=location,
        metrics=EXPLAINED_PEAKS,
        held_bytes=size,
        per_step=blocks,
    )


def test_what_was_alive_at_the_peak_is_known_by_the_line_that_asked_for_it() -> None:
    trace = [
        event("alloc", 512, 100, line=3),
        event("alloc", 1024, 300, line=4),
        event("alloc", 1536, 50, line=3),
        event("free_requested", 1024, 300),
        event("free_completed", 1024, 300),
        event("alloc", 2048, 200, line=5),
    ]
    blocks = [block(512, 100), block(1536, 50), block(2048, 200)]

    assert held_at_peak(snapshot(trace, blocks)) == (
        held(4, 300),
        held(3, 150, blocks=2),
    )


def test_what_was_there_before_the_step_has_no_line_and_counts() -> None:
    trace = [
        event("free_requested", 512, 70),
        event("alloc", 512, 80, line=3),
        event("free_requested", 512, 80),
    ]
    blocks = [block(0, 1000), block(512, 0, state="inactive")]

    assert held_at_peak(snapshot(trace, blocks)) == (held(None, 1000), held(3, 80))


def test_a_peak_before_the_first_allocation_is_what_was_there() -> None:
    trace = [event("free_requested", 512, 70), event("alloc", 512, 60)]

    assert held_at_peak(snapshot(trace, [block(512, 60)])) == (held(None, 70),)


def test_blocks_of_an_old_snapshot_lie_one_after_the_other() -> None:
    old = [
        {"size": 512, "state": "inactive"},
        {"size": 1024, "state": "active_allocated"},
    ]
    trace = [event("alloc", 4096, 10, line=3), event("free_requested", 512, 1024)]

    assert held_at_peak(snapshot(trace, old)) == (held(None, 1024), held(3, 10))


def test_what_no_python_asked_for_was_asked_for_by_backward() -> None:
    inside = [{"filename": TORCH, "line": 9, "name": "linear"}]
    trace = [
        {**event("alloc", 512, 100), "frames": []},
        {**event("alloc", 1024, 90), "frames": inside},
    ]
    blocks = [block(512, 100), block(1024, 90), block(1536, 80)]

    assert held_at_peak(snapshot(trace, blocks)) == (
        replace(held(None, 100), phase=Phase.BACKWARD),
        replace(
            held(None, 90), location=Location(file=TORCH, line=9, function="linear")
        ),
        held(None, 80),
    )


def test_other_devices_do_not_count() -> None:
    seen = snapshot([event("alloc", 0, 10, line=3)], [block(0, 10)])
    seen["segments"].append({**seen["segments"][0], "device": 1, "address": 8192})

    assert held_at_peak(seen) == (held(3, 10),)


def test_a_snapshot_in_which_nothing_happened_explains_nothing() -> None:
    assert held_at_peak({"segments": [], "device_traces": []}) == ()
    assert held_at_peak({"segments": [], "device_traces": [[]]}) == ()


def test_a_snapshot_is_read_back_as_it_was(tmp_path: Path) -> None:
    saved = snapshot([event("alloc", 512, 100)], [block(512, 100)])
    (tmp_path / "memory.pickle").write_bytes(pickle.dumps(saved))

    assert read_snapshot(tmp_path / "memory.pickle") == saved


def refusal_of(path: Path) -> str:
    with pytest.raises(UsageError) as refused:
        read_snapshot(path)
    return refused.value.text


def test_a_pickle_that_would_run_code_is_refused_before_it_does(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({"device_traces": Runs()}))

    assert refusal_of(path) == (
        f"{path}: expected a memory snapshot of torch, found a reference to "
        f"{os.mkdir.__module__}.mkdir"
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "Ran out of input"),
        (pickle.dumps([1]), "no device_traces"),
        (pickle.dumps({"segments": []}), "no device_traces"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused(
    tmp_path: Path, content: bytes, found: str
) -> None:
    path = tmp_path / "memory.pickle"
    path.write_bytes(content)

    assert refusal_of(path) == (
        f"{path}: expected a memory snapshot of torch, found {found}"
    )


class Memory:
    """``torch.cuda.memory`` with a log."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _record_memory_history(self, enabled: str | None, **how: object) -> None:
        shown = ", ".join(f"{name}={value}" for name, value in how.items())
        self.calls.append(f"record {enabled} {shown}".strip())

    def _dump_snapshot(self, path: str) -> None:
        self.calls.append(f"dump {Path(path).name} into {Path(path).parent.name}")


def torch_with(memory: Memory) -> SimpleNamespace:
    cuda = SimpleNamespace(
        memory=memory,
        synchronize=lambda: memory.calls.append("synchronize"),
        device_count=lambda: 0,  # none but the current one
    )
    return SimpleNamespace(cuda=cuda)


def test_one_step_is_recorded_and_saved(tmp_path: Path) -> None:
    memory = Memory()
    path = tmp_path / "made" / "memory.pickle"

    record_allocations(
        torch_with(memory), lambda n: memory.calls.append(f"step {n}"), (3,), path
    )

    assert memory.calls == [
        "synchronize",
        "record all context=alloc, stacks=python, max_entries=1000000",
        "step 3",
        "synchronize",
        "dump memory.pickle into made",
        "record None",
    ]


def test_a_step_that_raises_leaves_no_recording_behind(tmp_path: Path) -> None:
    memory = Memory()

    with pytest.raises(ZeroDivisionError):
        record_allocations(torch_with(memory), lambda: 1 / 0, (), tmp_path / "x")

    assert memory.calls[-1] == "record None"
