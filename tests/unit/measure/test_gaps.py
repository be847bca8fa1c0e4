"""When a GPU is busy and where it has nothing to do, in schedules worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from builders import a_measurement
from gpu_on_paper import SimulatedGpu
from trace_events import call, event, function, step

from pytest_gpuperf.measure.gpu_activity import find_busy, find_gaps, with_busy
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement


Schedule = list[list[Any]]

ITEM = "train.py:21 in step"
COPY = "train.py:11 in step"
STEP = "/app/train.py:8 in step (line unknown, this is the def)"


def simulated(*schedule: list[Any], steps: int = 3) -> list[Any]:
    gpu = SimulatedGpu()
    for _ in range(steps):
        gpu.play(schedule)
    return gpu.events


@pytest.mark.parametrize(
    ("schedule", "step_ms", "gaps"),
    [
        ([["work", 1000], ["launch", 100, 500]], 50.0, {}),
        ([["work", 500], ["launch", 4, 1000]], 8.5, {STEP: 52.9}),
        ([["work", 8000], ["launch", 40, 500]], 20.0, {}),
        ([["work", 8000], ["launch", 40, 500], ["item"]], 28.0, {ITEM: 28.6}),
        ([["copy", 6000], ["launch", 40, 250]], 16.0, {COPY: 37.5}),
        ([["load", 35_000], ["launch", 40, 250], ["item"]], 45.0, {STEP: 77.8}),
    ],
    ids=["GPU-bound", "launch-bound", "host work", "item", "pageable copy", "loader"],
)
def test_what_the_gpu_waits_for_is_the_line_of_its_longest_gap(
    schedule: Schedule, step_ms: float, gaps: dict[str, float]
) -> None:
    events = simulated(*schedule)
    events.append(function("/app/train.py(8): step", -1.0, 10**9) | {"tid": 1})

    busy = find_busy(events)

    assert busy is not None
    assert round(busy[1], 1) == step_ms
    found = {str(gap.location): round(gap.percent, 1) for gap in find_gaps(events)}
    assert found == gaps


def kernel(start_us: float, length_us: float, stream: int = 7) -> dict[str, Any]:
    return event("kernel", "gemm", start_us, length_us, thread=stream)


def test_busy_is_the_union_of_streams_without_copies() -> None:
    events = [
        step(0, 50),
        kernel(0, 40),
        kernel(20, 40, stream=8),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 50, 30, thread=9),
        kernel(90, 10),
    ]

    busy = find_busy(events)

    assert busy is not None
    assert busy[0] == 0.7


def test_the_first_step_leads_in_for_the_profiler_has_emptied_the_queue() -> None:
    events = simulated(["work", 8000], ["launch", 40, 500], steps=2)

    busy = find_busy(events)

    assert busy is not None
    assert busy[0] == 1.0


@pytest.mark.parametrize("made", [kernel, call, step], ids=lambda made: made.__name__)
def test_without_a_step_and_a_kernel_nobody_is_busy(
    made: Callable[..., dict[str, Any]],
) -> None:
    events = [kernel(0, 1)] if made is kernel else [step(0, 9)]
    if made is call:
        events.append(call("cudaLaunchKernel", 1.0))

    assert find_busy(events) is None
    assert list(find_gaps(events)) == []


def measured(kind: DeviceKind, **fields: Any) -> Measurement:
    return a_measurement(None, on=kind, **fields)


def test_a_gpu_is_as_busy_as_in_a_step_that_no_profiler_makes_longer() -> None:
    events = simulated(["work", 500], ["launch", 4, 1000])
    profiled_ms = 8.5

    busy = [
        with_busy(
            measured(
                DeviceKind.CUDA,
                times={"step_ms": Distribution.of([timed * profiled_ms])},
            ),
            events,
        )
        .times["busy_pct"]
        .q50
        for timed in (1.2, 1.0, 0.9, 0.1)
    ]

    assert busy == pytest.approx([47.06, 47.06, 47.06 / 0.9, 100.0], abs=0.01)


def test_a_trace_on_cuda_without_a_kernel_says_why_there_is_no_number() -> None:
    after = with_busy(measured(DeviceKind.CUDA), [step(0, 9)])

    assert after.times == {}
    assert after.findings == ()
    assert after.unmeasured == {
        "busy_pct": "no kernel ran on the GPU in the profiled steps"
    }


@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.SCRIPTED])
def test_nothing_is_said_where_no_kernels_run(kind: DeviceKind) -> None:
    assert with_busy(measured(kind), [step(0, 9)]) == measured(kind)
