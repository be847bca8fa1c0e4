"""What a step waits for, in schedules of a host and a GPU that were worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import a_measurement
from gpu_on_paper import SimulatedGpu
from hypothesis import given
from hypothesis import strategies as st
from trace_events import call
from trace_events import event
from trace_events import function
from trace_events import step

from pytest_gpuperf.measure.bottleneck import MOST_STRETCHES
from pytest_gpuperf.measure.bottleneck import Spent
from pytest_gpuperf.measure.bottleneck import diagnosed
from pytest_gpuperf.measure.bottleneck import diagnosis_of
from pytest_gpuperf.measure.bottleneck import diagnosis_of_counts
from pytest_gpuperf.measure.bottleneck import find_spent
from pytest_gpuperf.measure.bottleneck import find_timeline
from pytest_gpuperf.measure.gpu_activity import find_busy
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import Bottleneck
from pytest_gpuperf.model.finding import Diagnosis
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.finding import Part
from pytest_gpuperf.model.finding import StepTimeline
from pytest_gpuperf.model.finding import Wait
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.worker.items import below


Schedule = list[list[Any]]

ITEM = "train.py:21 in step"
COPY = "train.py:11 in step"


def simulated(*schedule: list[Any], steps: int = 3) -> list[Any]:
    gpu = SimulatedGpu()
    for _ in range(steps):
        gpu.play(schedule)
    return gpu.events


def shares(*schedule: list[Any]) -> dict[str, float]:
    parts = diagnosis_of(find_spent(simulated(*schedule)), {}).parts
    return {part.bottleneck.value: round(part.percent or 0.0, 1) for part in parts}


def period_ms(*schedule: list[Any]) -> float:
    return round(sum(part.ms for part in find_spent(simulated(*schedule))), 1)


@pytest.mark.parametrize(
    ("schedule", "step_ms", "found"),
    [
        ([["work", 1000], ["launch", 100, 500]], 50.0, {"gpu": 100.0}),
        ([["work", 2000], ["launch", 10, 1000]], 10.0, {"gpu": 100.0}),
        (
            [["work", 500], ["launch", 4, 1000]],
            8.5,
            {"launches": 52.9, "gpu": 47.1},
        ),
        ([["work", 8000], ["launch", 40, 500]], 20.0, {"gpu": 100.0}),
        (
            [["work", 8000], ["launch", 40, 500], ["item"]],
            28.0,
            {"syncs": 28.6, "gpu": 71.4},
        ),
    ],
    ids=["GPU-bound", "balanced", "launch-bound", "host work", "item at the end"],
)
def test_a_schedule_is_shared_out_as_it_was_worked_out(
    schedule: Schedule, step_ms: float, found: dict[str, float]
) -> None:
    assert period_ms(*schedule) == step_ms
    assert shares(*schedule) == found


@pytest.mark.parametrize(
    ("schedule", "cause"),
    [
        ([["launch", 3, 2000]], Bottleneck.LAUNCHES),
        (
            [["load", 35_000], ["copy", 500], ["launch", 40, 250], ["item"]],
            Bottleneck.LOADER,
        ),
        ([["load", 9], ["copy", 6000], ["launch", 40, 250]], Bottleneck.COPIES),
        ([["load", 9], ["copy_pinned", 100], ["launch", 40, 250]], Bottleneck.GPU),
    ],
    ids=["small batches", "one worker", "pageable batches", "none of these"],
)
def test_each_rung_of_the_ladder_of_speed_waits_for_what_was_published(
    schedule: Schedule, cause: Bottleneck
) -> None:
    assert diagnosis_of(find_spent(simulated(*schedule)), {}).first.bottleneck is cause


def test_no_more_is_laid_to_a_sync_than_could_be_won_without_it() -> None:
    before = [["load", 20_000], ["copy", 6000], ["launch", 46_000], ["item"]]

    (syncs, *_) = diagnosis_of(find_spent(simulated(*before)), {}).parts

    assert syncs.bottleneck is Bottleneck.SYNCS
    assert (syncs.per_step, str(syncs.location)) == (1, ITEM)
    assert round(syncs.blocked_percent) == 64
    won = 1 - period_ms(*before[:-1]) / period_ms(*before)
    assert won <= (syncs.percent or 0) / 100 < won + 0.03


def test_a_loader_beside_which_the_gpu_works_is_to_blame_for_the_idle_time_behind_it() -> (
    None
):
    """Without the loader, the host's own work would run beside the GPU."""
    work: Schedule = [["work", 1000], ["launch", 4000]]
    load = ["load", 12_000]

    (loader, gpu) = diagnosis_of(find_spent(simulated(load, *work)), {}).parts

    won = 100 * (1 - period_ms(*work) / period_ms(load, *work))
    assert (loader.bottleneck, gpu.bottleneck) == (Bottleneck.LOADER, Bottleneck.GPU)
    assert loader.percent == pytest.approx(won, abs=0.5)


def test_a_copy_that_blocks_the_host_is_found_with_its_line() -> None:
    (copies, gpu) = diagnosis_of(
        find_spent(simulated(["copy", 6000], ["work", 10_000], ["launch", 46_000])), {}
    ).parts

    assert copies == Part(
        bottleneck=Bottleneck.COPIES,
        percent=pytest.approx(25.8, abs=0.05),
        blocked_percent=pytest.approx(46.8, abs=0.05),
        per_step=1,
        location=Location(file="train.py", line=11, function="step"),
    )
    assert (gpu.bottleneck, gpu.blocked_percent) == (Bottleneck.GPU, 0.0)


def test_a_copy_that_hides_nobody_and_blocks_nobody_is_still_waited_for() -> None:
    schedule = [["copy_pinned", 6000], ["launch", 46_000]]

    (copies, _) = diagnosis_of(find_spent(simulated(*schedule)), {}).parts

    assert (copies.bottleneck, copies.per_step) == (Bottleneck.COPIES, 0)
    assert str(copies.location) == COPY


@pytest.mark.parametrize(("joined_when", "exposed"), [("after", 0.0), ("before", 28.6)])
def test_a_collective_counts_where_nothing_computes_beside_it(
    joined_when: str, exposed: float
) -> None:
    order = [["join"], ["launch", 1000, 5]]
    rest = order if joined_when == "before" else order[::-1]
    schedule = [["launch", 1000, 5], ["all_reduce", 4000], *rest]

    assert shares(*schedule).get("communication", 0.0) == exposed


def test_what_the_profiler_adds_to_launches_is_not_told() -> None:
    spent = find_spent(simulated(["work", 500], ["launch", 4, 1000]))
    timed = {"step_ms": Distribution.of([5.0]), "latency_ms": Distribution.of([5.1])}

    diagnosis = diagnosis_of(spent, timed)

    assert [(p.bottleneck.value, round(p.percent or 0)) for p in diagnosis.parts] == [
        ("launches", 20),
        ("gpu", 80),
    ]
    assert diagnosis.isolated == pytest.approx(1.02)


def test_a_loader_that_left_no_range_is_known_by_its_metric() -> None:
    spent = find_spent(simulated(["work", 30_000], ["launch", 10_000]))
    waited = {"loader_wait_pct": Distribution.of([40.0])}

    assert [
        (part.bottleneck.value, round(part.percent or 0))
        for part in diagnosis_of(spent, waited).parts
    ] == [("loader", 40), ("launches", 27), ("gpu", 33)]


def test_the_launch_that_came_late_is_known_by_the_function_around_it() -> None:
    events = simulated(["work", 500], ["launch", 4, 1])
    events.append(function("/app/train.py(8): step", -1.0, 10_000.0) | {"tid": 1})

    (launches, _) = diagnosis_of(find_spent(events), {}).parts

    assert str(launches.location) == (
        "/app/train.py:8 in step (line unknown, this is the def)"
    )


schedules = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["load", "work"]), st.integers(1, 20_000)),
        st.tuples(st.sampled_from(["copy", "copy_pinned"]), st.integers(1, 5000)),
        st.tuples(st.just("launch"), st.integers(1, 5000), st.integers(1, 9)),
        st.tuples(st.just("all_reduce"), st.integers(1, 9000)),
        st.just(("item",)),
        st.just(("join",)),
    ),
    max_size=12,
)


@given(schedules)
def test_every_moment_of_a_step_goes_to_one_part(schedule: Schedule) -> None:
    events = simulated(["launch", 10], *schedule)

    parts = diagnosis_of(find_spent(events), {}).parts
    busy = find_busy(events)

    assert busy is not None
    by_name = {part.bottleneck: part.percent or 0.0 for part in parts}
    assert sum(by_name.values()) == pytest.approx(100, abs=0.5 * len(Bottleneck))
    on_gpu = [by_name.get(b, 0.0) for b in (Bottleneck.GPU, Bottleneck.COMMUNICATION)]
    assert sum(on_gpu) == pytest.approx(busy[0], abs=1.0)
    assert [p for p in parts if (p.percent or 0) < 0 or p.blocked_percent < 0] == []


def kernel(start_us: float, length_us: float, stream: int = 7) -> dict[str, Any]:
    return event("kernel", "gemm", start_us, length_us, thread=stream)


def test_busy_is_the_union_of_streams_and_copies_stand_apart() -> None:
    events = [
        step(0, 50),
        kernel(0, 40),
        kernel(20, 40, stream=8),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 50, 30, thread=9),
        kernel(90, 10),
    ]

    assert find_busy(events) == (70.0, 30.0)


def test_the_first_step_leads_in_for_the_profiler_has_emptied_the_queue() -> None:
    events = simulated(["work", 8000], ["launch", 40, 500], steps=2)

    assert find_busy(events) == (100.0, 0.0)


@pytest.mark.parametrize("made", [kernel, call, step], ids=lambda made: made.__name__)
def test_without_a_step_and_a_kernel_nobody_is_busy(
    made: Callable[..., dict[str, Any]],
) -> None:
    events = [kernel(0, 1)] if made is kernel else [step(0, 9)]
    if made is call:
        events.append(call("cudaLaunchKernel", 1.0))

    assert find_busy(events) is None
    assert find_spent(events) == ()


def measured(kind: DeviceKind, **fields: Any) -> Measurement:
    return a_measurement(None, on=kind, **fields)


def test_a_measurement_on_cuda_gets_the_metric_and_the_diagnosis() -> None:
    events = simulated(["work", 500], ["launch", 4, 1000])

    after = diagnosed(measured(DeviceKind.CUDA), events)

    assert round(after.times["busy_pct"].q50, 1) == 47.1
    assert after.diagnosis is not None
    assert after.diagnosis.copying_percent == 0.0
    assert after.diagnosis.first.bottleneck is Bottleneck.LAUNCHES


def test_a_gpu_is_as_busy_as_in_a_step_that_no_profiler_makes_longer() -> None:
    events = simulated(["work", 500], ["launch", 4, 1000])
    profiled_ms = sum(part.ms for part in find_spent(events))

    busy = [
        diagnosed(
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


def test_a_step_is_two_lanes_with_the_waits_of_the_cpu() -> None:
    found = find_timeline(simulated(["work", 8000], ["launch", 500, 40], ["item"]))

    assert found is not None
    assert found.length_us == 28_011
    assert found.kernels == ((8011, 28_011),)
    assert found.copies == ((0, 1),)
    *_, wait = found.waits
    assert (wait.end_us, wait.bottleneck) == (28_011, Bottleneck.SYNCS)
    assert wait.end_us - wait.start_us == 19_688
    assert str(wait.location) == ITEM


def test_of_many_kernels_the_nearest_are_joined_and_no_gap_becomes_work() -> None:
    found = find_timeline(simulated(*[["work", 500], ["launch", 100]] * 90))

    assert found is not None
    assert len(found.kernels) == MOST_STRETCHES
    busy_us = sum(end - start for start, end in found.kernels)
    assert busy_us < 0.7 * found.length_us


def test_one_step_alone_is_no_whole_one() -> None:
    assert find_timeline(simulated(["launch", 500, 4], steps=1)) is None


def test_a_trace_on_cuda_without_a_kernel_says_why_there_is_no_number() -> None:
    after = diagnosed(measured(DeviceKind.CUDA), [step(0, 9)])

    assert after.times == {}
    assert after.diagnosis is None
    assert after.unmeasured == {
        "busy_pct": "no kernel ran on the GPU in the profiled steps"
    }


def sync(per_step: int, *, line: int = 7, **fields: Any) -> Finding:
    location = Location(file="a.py", line=line, function="step")
    values = {"kind": FindingKind.SYNC, "blocked_ms": 0.0, **fields}
    return Finding(
        op="aten::item", api=None, per_step=per_step, location=location, **values
    )


def test_on_the_cpu_the_loader_is_told_from_the_rest_and_waits_are_counted() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        step(0, 100),
        event("user_annotation", name, 10, 40),
        step(100, 100),
        event("user_annotation", name, 110, 20),
    ]

    after = diagnosed(measured(DeviceKind.CPU, findings=(sync(2),)), events)

    assert after.diagnosis == Diagnosis(
        parts=(
            Part(bottleneck=Bottleneck.LOADER, percent=pytest.approx(30)),
            Part(bottleneck=Bottleneck.SYNCS, per_step=2, location=sync(2).location),
            Part(bottleneck=Bottleneck.HOST, percent=pytest.approx(70)),
        )
    )
    assert "busy_pct" not in after.times


@pytest.mark.parametrize("loading_us", [0, 5])
def test_on_the_cpu_the_metric_of_a_loader_speaks_before_its_ranges(
    loading_us: int,
) -> None:
    """The profiler makes steps longer, and their share of the loader smaller."""
    times = {"loader_wait_pct": Distribution.of([61.0])}
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [step(0, 9), event("user_annotation", name, 1, loading_us)]

    after = diagnosed(measured(DeviceKind.CPU, times=times), events)

    assert after.diagnosis is not None
    assert after.diagnosis.first == Part(bottleneck=Bottleneck.LOADER, percent=61.0)


@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.SCRIPTED])
def test_nothing_is_said_of_a_step_that_waits_for_nothing(kind: DeviceKind) -> None:
    assert diagnosed(measured(kind), [step(0, 9)]).diagnosis is None


@pytest.mark.parametrize("duration_us", [None, 0.0])
def test_a_step_without_an_end_has_no_shares(duration_us: float | None) -> None:
    found = diagnosed(measured(DeviceKind.CPU), [step(0, duration_us)])

    assert found.diagnosis is None


def test_without_a_clock_waits_are_counted_syncs_first() -> None:
    found = (
        sync(3, kind=FindingKind.COPY, line=1),
        sync(1, line=2),
        sync(2, line=3),
        sync(9, metrics=(), allowed="the log needs it"),
        sync(9, kind=FindingKind.MAYBE, metrics=()),
    )

    assert diagnosis_of_counts(found) == Diagnosis(
        parts=(
            Part(
                bottleneck=Bottleneck.SYNCS,
                per_step=3,
                location=sync(2, line=3).location,
            ),
            Part(
                bottleneck=Bottleneck.COPIES,
                per_step=3,
                location=sync(3, line=1).location,
            ),
        )
    )
    assert diagnosis_of_counts(found[3:]) is None


def test_a_wait_for_a_copy_to_the_device_is_that_copy_s() -> None:
    moved = sync(1, line=1, kind=FindingKind.TRANSFER, metrics=("h2d_bytes",))

    found = diagnosis_of_counts((sync(1, line=1), sync(1, line=2), moved))

    assert found is not None
    assert [(part.bottleneck, str(part.location)) for part in found.parts] == [
        (Bottleneck.SYNCS, "a.py:2 in step"),
        (Bottleneck.COPIES, "a.py:1 in step"),
    ]


def test_the_lines_of_a_diagnosis_are_named_from_the_project_on(tmp_path: Path) -> None:
    inside = Location(file=str(tmp_path / "a" / "b.py"), line=3, function="step")
    parts = (Part(bottleneck=Bottleneck.SYNCS, per_step=1, location=inside),)
    wait = Wait(start_us=1, end_us=2, bottleneck=Bottleneck.SYNCS, location=inside)
    timeline = StepTimeline(length_us=9, waits=(wait,))
    diagnosis = Diagnosis(parts=parts, timeline=timeline)
    measurement = measured(DeviceKind.PRETEND, diagnosis=diagnosis)

    named = below(tmp_path, measurement).diagnosis

    assert named is not None
    assert named.timeline is not None
    assert str(named.timeline.waits[0].location) == "a/b.py:3 in step"
    assert str(named.first.location) == "a/b.py:3 in step"


def test_a_part_that_takes_hardly_anything_is_not_named() -> None:
    spent = (
        Spent(bottleneck=Bottleneck.GPU, ms=99.6),
        Spent(bottleneck=Bottleneck.SYNCS, ms=0.4),
    )

    assert [part.bottleneck for part in diagnosis_of(spent, {}).parts] == [
        Bottleneck.GPU
    ]
