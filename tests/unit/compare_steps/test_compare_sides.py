"""Two steps side by side: what is timed, what is counted, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from scripted_device import ScriptedDevice

from pytest_gpuperf.compare_steps.isolation import Pair
from pytest_gpuperf.compare_steps.measure import compare_sides
from pytest_gpuperf.devices.base import MemoryReading, Step, TraceEvent
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import ComparedCall


torch = pytest.importorskip("torch")

SCRIPT: Mapping[str, Any] = {
    "t#before": {"step_ms": 13.0, "mem_mb": 90, "syncs": 2},
    "t#after": {"step_ms": 10.0, "mem_mb": 80, "syncs": 1},
}


class GpuThatIdles(ScriptedDevice):
    """Claims to be a GPU, and its profiler sees no work there."""

    kind = DeviceKind.CUDA

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        return []


class Lending(ScriptedDevice):
    """Has an allocator whose peaks count the blocks of *tensors* whoever holds them."""

    def __init__(
        self, script: Mapping[str, Any], run: int, tensors: Sequence[Any]
    ) -> None:
        super().__init__(script, run)
        self._lent = [t.untyped_storage().data_ptr() for t in tensors]

    def blocks(self) -> Mapping[int, int]:
        return dict.fromkeys(self._lent, 512)

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        reading = super().measure_memory(step, arguments)
        (peak_bytes,) = reading.exact.values()
        more = {"peak_reserved_bytes": peak_bytes}
        return replace(reading, exact={**reading.exact, **more})


def compare(
    script: Mapping[str, Any] = SCRIPT,
    *,
    device: type[ScriptedDevice] = ScriptedDevice,
    seconds: float = 60.0,
) -> ComparedCall:
    pair = Pair(before=Subject(step=int), after=Subject(step=float))
    plan = MeasurePlan(test="a.py::t", seconds=seconds)
    return compare_sides(
        device(script, run=0), pair, plan, Tolerance(ratios={"ms": 0.01})
    )


def test_times_and_counts_of_both_sides_are_next_to_each_other() -> None:
    sides = compare().sides

    assert sides.time is not None
    assert sides.time.answer is Answer.FASTER
    assert sides.time.speedup == pytest.approx(1.3)
    assert sides.before == {"peak_allocated_bytes": 90 * 2**20, "syncs": 2}
    assert sides.after == {"peak_allocated_bytes": 80 * 2**20, "syncs": 1}
    assert sides.unmeasured["launches"] == "the scripted device copies nothing"
    assert sides.training is None


def test_after_is_a_measurement_with_its_findings_and_no_time_that_could_be_judged() -> (
    None
):
    after = compare().after

    assert str(after.findings[0].location) == "train.py:12 in step"
    assert list(after.times) == ["latency_ms"]


def test_a_cap_that_leaves_no_room_leaves_no_counts_either() -> None:
    sides = compare(seconds=0.3).sides

    assert sides.time is not None
    assert sides.time.speedup is None
    assert sides.time.why == "the time cap left room for no quad of blocks"
    assert (sides.before, sides.after) == ({}, {})
    assert sides.unmeasured["syncs"] == (
        "the time cap was reached before this phase; raise --gpuperf-seconds"
    )


def test_counting_has_its_share_of_the_cap() -> None:
    """Steps that grow dearer and noisier would take turns until the cap."""
    growing = {"*": {"step_ms": 100.0, "growth": 1.0005}}

    sides = compare(growing, seconds=20.0).sides

    assert sides.time is not None
    assert sides.before["syncs"] == sides.after["syncs"] == 0


def test_steps_that_never_touch_the_gpu_have_no_time() -> None:
    sides = compare(device=GpuThatIdles).sides

    assert sides.time is None
    assert sides.unmeasured["speedup"] == "the step never touched the GPU"
    assert (sides.before, sides.after) == ({}, {})


def test_a_peak_leaves_out_what_only_the_other_side_holds() -> None:
    """Of 100 bytes a side asks for, the allocator takes 512."""
    kept = {name: torch.ones(25) for name in ("before", "after", "both")}
    kept["after"].requires_grad = True
    kept["after"].grad = torch.ones(25)
    state = {kept["after"]: {"momentum": torch.ones(25)}}

    def before() -> object:
        return kept_before, kept_by_both

    def after() -> object:
        return state, kept_by_both

    kept_before, kept_by_both = kept["before"], kept["both"]
    tensors = [
        *kept.values(),
        kept["after"].grad,
        state[kept["after"]]["momentum"],
        torch.ones(25),
    ]
    pair = Pair(before=Subject(step=before), after=Subject(step=after))
    plan = MeasurePlan(test="a.py::t", seconds=60.0)
    device = Lending(SCRIPT, run=0, tensors=tensors)

    sides = compare_sides(device, pair, plan, Tolerance()).sides

    peak = "peak_allocated_bytes"
    assert sides.before[peak] == 90 * 2**20 - 3 * 512
    assert sides.after[peak] == 80 * 2**20 - 512
    assert "peak_reserved_bytes" not in {*sides.before, *sides.after}
    assert sides.unmeasured["peak_reserved_bytes"] == (
        "both sides share the cache of the allocator: measure the step by itself, with "
        "gpuperf(step)"
    )
