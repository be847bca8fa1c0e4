"""One measurement: every phase in order, on scripted times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from scripted_device import ScriptedDevice
from scripted_steps import Clockwork

from pytest_gpuperf.devices.base import MeasuringDevice, MemoryReading, Step, TraceEvent
from pytest_gpuperf.devices.compile import CompiledCode
from pytest_gpuperf.errors import ErrorId, StepError
from pytest_gpuperf.measure.phases import find_compilation, measure
from pytest_gpuperf.measure.plan import Deadline, MeasuredStep, MeasurePlan, longest_run
from pytest_gpuperf.measure.step import Subject, subject_of
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import Finding, FindingKind, Location
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.metrics import METRICS


def in_a_minute(device: MeasuringDevice, subject: Subject, **plan: Any) -> MeasuredStep:
    """What is measured of a step in a minute, or as the *plan* says."""
    known: dict[str, Any] = {"test": "step", "seconds": 60, **plan}
    return measure(device, subject, MeasurePlan(**known))


def test_a_measurement_holds_times_memory_syncs_and_where_they_were_read() -> None:
    device = ScriptedDevice({"step": {"step_ms": 4.0, "mem_mb": 2, "syncs": 1}}, run=0)

    measured = in_a_minute(device, Subject(step=lambda: 7))

    measurement = measured.measurement
    assert measured.result == 7
    assert {name: t.q50 for name, t in measurement.times.items()} == {
        "step_ms": 4.0,
        "latency_ms": 4.0,
    }
    assert measurement.exact == {"peak_allocated_bytes": 2 * 2**20, "syncs": 1}
    assert str(measurement.findings[0].location) == "train.py:12 in step"
    assert measurement.environment.hardware.key == "scripted"
    assert measurement.dirty == ()


def test_the_samples_of_a_run_are_those_that_its_times_sum_up() -> None:
    device = Clockwork(lambda step: 200.0 + step % 2)

    measured = in_a_minute(device, Subject(step=device.step))

    times, samples = measured.measurement.times, measured.measurement.samples
    assert {name: len(kept) for name, kept in samples.items()} == {
        "step_ms": 5,
        "latency_ms": 7,
    }
    assert {n: Distribution.of(kept) for n, kept in samples.items()} == {
        name: times[name] for name in samples
    }


def test_where_only_times_are_asked_nothing_runs_after_the_timed_rounds() -> None:
    script = {"step": {"step_ms": 4.0, "mem_mb": 2, "syncs": 1}}
    done: list[str] = []

    measured = in_a_minute(
        ScriptedDevice(script, run=0),
        Subject(step=lambda: 7),
        only_times=True,
        follow=done.append,
    )

    times = measured.measurement.times
    assert measured.result == 7
    assert times["step_ms"].q50 == 4.0
    assert "latency_ms" not in times
    assert (measured.measurement.exact, measured.measurement.findings) == ({}, ())
    assert done[-1] == "round 20/20"


def test_a_contended_run_is_dirty() -> None:
    device = ScriptedDevice({"step": {"waiting": 0.3}}, run=0)

    measured = in_a_minute(device, Subject(step=int))

    assert measured.measurement.dirty == (
        "the process waited for a core over 5% of the time",
    )


def test_the_time_cap_cuts_the_later_phases_and_each_metric_says_so() -> None:
    device = Clockwork(lambda _: 30_000.0)

    measured = in_a_minute(device, Subject(step=device.step))

    measurement = measured.measurement
    cut = "the time cap was reached before this phase; raise --gpuperf-seconds"
    assert measurement.times["step_ms"].q50 == 30_000.0
    assert measurement.exact == {}
    assert measurement.missed["syncs"] == cut
    assert measurement.missed["latency_ms"] == cut
    assert set(measurement.missed) <= set(METRICS)
    assert device.now_ns() < 100e9


class Starved(Clockwork):
    """A device whose process has a core for a quarter of the time."""

    def own_now_ns(self) -> int:
        return self.now_ns() // 4


@pytest.mark.parametrize("step_ms", [10.0, 2_500.0, 5_000.0, 25_000.0, 45_000.0])
def test_what_is_exact_is_the_same_where_others_have_the_cores(step_ms: float) -> None:
    quiet, starved = (
        in_a_minute(device, Subject(step=device.step)).measurement
        for device in (Clockwork(lambda _: step_ms), Starved(lambda _: 4 * step_ms))
    )

    assert starved.exact == quiet.exact
    assert bool(starved.exact) == (step_ms <= 5_000)


def test_times_end_by_the_wall_clock_even_if_others_have_the_cores() -> None:
    device = Starved(lambda _: 10_000.0)

    measured = in_a_minute(device, Subject(step=device.step), only_times=True)

    assert measured.measurement.times
    assert device.now_ns() <= 130e9


def test_a_step_longer_than_half_the_cap_is_timed_twice_more_and_is_a_bound() -> None:
    device = Clockwork(lambda n: 50_000.0 if n == 1 else 45_000.0)
    subject = Subject(step=lambda: device.step() or "loss")

    measured = in_a_minute(device, subject)

    assert measured.result == "loss"
    assert measured.measurement.times["step_ms"].q50 == 45_000.0
    assert measured.measurement.samples == {"step_ms": (45_000.0, 45_000.0)}
    assert measured.measurement.dirty == (
        "too slow to measure within --gpuperf-seconds, which left room for 3 steps",
    )
    assert measured.measurement.unwaited == {"step_ms": 45_000.0}
    assert "syncs" in measured.measurement.missed
    assert device.steps == 3


def test_a_first_step_that_eats_all_patience_is_a_bound_where_it_compiled_nothing() -> (
    None
):
    eager, compiling = Clockwork(lambda _: 100_000.0), Clockwork(lambda _: 100_000.0)
    compiling.counters = lambda steps: steps

    unwaited = [
        in_a_minute(device, Subject(step=device.step)).measurement
        for device in (eager, compiling)
    ]

    assert [(m.unwaited, m.dirty) for m in unwaited] == [
        (
            {"step_ms": 100_000.0},
            (
                "too slow to measure within --gpuperf-seconds, which left room for 1 step, cold",
            ),
        ),
        (
            {},
            (
                "too slow to measure within --gpuperf-seconds, which left room for 1 step, cold",
            ),
        ),
    ]
    assert (eager.steps, compiling.steps) == (1, 1)


def test_waiting_for_a_core_in_a_few_rounds_is_enough_to_doubt_all() -> None:
    calm, jostled = Clockwork(lambda _: 10.0), Clockwork(lambda _: 10.0)
    jostled.waits = lambda steps: 30_000_000 if steps > 25 else 0

    dirty = [
        in_a_minute(device, Subject(step=device.step)).measurement.dirty
        for device in (calm, jostled)
    ]

    assert dirty == [(), ("the process waited for a core over 5% of the time",)]


@pytest.mark.parametrize("raising_call", [1, 17])
def test_what_the_step_raises_comes_out(raising_call: int) -> None:
    device = Clockwork(lambda _: 1.0)

    def step() -> None:
        device.step()
        if device.steps == raising_call:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_a_minute(device, Subject(step=step))

    assert device.steps == raising_call


def test_a_step_that_is_no_function_is_refused_by_its_type() -> None:
    with pytest.raises(StepError) as caught:
        subject_of([1])

    assert caught.value.error_id is ErrorId.GP215


def test_an_awaitable_is_refused_and_closed() -> None:
    async def step() -> None:
        """Never run."""

    with pytest.raises(StepError) as caught:
        Subject(step=step).run_once()

    assert "the step returned a coroutine" in str(caught.value)


class OnCuda(ScriptedDevice):
    """Claims to be a GPU; its trace holds what it is shown."""

    kind = DeviceKind.CUDA

    def __init__(self, category: str) -> None:
        super().__init__({}, run=0)
        self._category = category

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        events = super().profile(step, batches)
        return [*events, {**events[0], "cat": self._category, "name": "sgemm"}]


def test_a_step_that_never_touched_the_gpu_is_not_measured_at_all() -> None:
    step = Subject(step=int)

    idle = in_a_minute(OnCuda("cpu_op"), step).measurement
    busy = in_a_minute(OnCuda("kernel"), step).measurement

    assert (idle.times, idle.exact, idle.samples) == ({}, {}, {})
    assert set(idle.unmeasured) == set(METRICS)
    assert set(idle.unmeasured.values()) == {"the step never touched the GPU"}
    assert busy.exact["syncs"] == 0


def test_a_gpu_s_copies_are_counted_and_a_cpu_has_none_to_count() -> None:
    step = Subject(step=int)
    on_cuda, scripted = OnCuda("kernel"), ScriptedDevice({}, run=0)

    counted = [
        {"h2d_bytes", "pageable_copies"} & in_a_minute(d, step).measurement.exact.keys()
        for d in (on_cuda, scripted)
    ]

    assert counted == [{"h2d_bytes", "pageable_copies"}, set()]


def test_it_is_followed_from_warm_up_to_the_phases_without_times() -> None:
    device = Clockwork(lambda _: 200.0)
    said: list[str] = []

    in_a_minute(device, Subject(step=device.step), follow=said.append)

    assert [doing for doing in said if doing.startswith("warm-up")] == said[:2]
    assert said[2:] == [*(f"round {n}/5" for n in range(1, 6)), "memory and syncs"]


class Launching(OnCuda):
    """Launches a kernel in each step."""

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        events = super().profile(step, batches)
        moment = {"ts": events[0]["ts"] + 1.0, "dur": 1.0, "args": {"correlation": 7}}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        return [
            *events,
            {**events[0], **launch, **moment},
            {**events[0], "cat": "kernel", "name": "sgemm", **moment},
        ]


def test_a_gpu_s_launches_are_counted() -> None:
    measured = in_a_minute(Launching("kernel"), Subject(step=int))

    assert measured.measurement.exact["launches"] == 1


class Replaying(Launching):
    """Launches a CUDA graph in each step, which torch has seen or not."""

    def __init__(self, seen_bytes: int | None) -> None:
        super().__init__("kernel")
        self._seen_bytes = seen_bytes

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        reading = super().measure_memory(step, arguments)
        return replace(reading, graph_bytes=self._seen_bytes)

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        renamed = {"cudaLaunchKernel": "cudaGraphLaunch"}
        return [
            {**event, "name": renamed.get(event["name"], event["name"])}
            for event in super().profile(step, batches)
        ]


def test_a_peak_is_unmeasured_where_graphs_are_replayed_that_torch_has_not_seen() -> (
    None
):
    seen, unseen = (
        in_a_minute(Replaying(size), Subject(step=int)).measurement
        for size in (0, None)
    )

    assert "peak_allocated_bytes" in seen.exact
    assert "peak_allocated_bytes" not in unseen.exact
    assert unseen.missed == {
        "peak_allocated_bytes": "a CUDA graph is replayed by other means than "
        "torch.cuda.CUDAGraph, and what its replays use is in no peak"
    }


class Compiling(ScriptedDevice):
    """Knows of a graph break, and whether a step is run to see it."""

    def __init__(self) -> None:
        super().__init__({}, run=0)
        self.asked_to_run: bool | None = None

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
        self.asked_to_run = run is not None
        line = Location(file="train.py", line=3, function="step")
        broken = Finding(
            kind=FindingKind.BREAK,
            op=None,
            per_step=1,
            location=line,
            metrics=("graph_breaks",),
            reason="it reads a number",
        )
        return CompiledCode(findings=(broken,))


def test_what_is_known_of_compiled_code_is_measured_and_found() -> None:
    device = Compiling()

    measurement = in_a_minute(device, Subject(step=int)).measurement

    assert (measurement.exact["graph_breaks"], measurement.exact["recompiles"]) == (
        1,
        0,
    )
    (finding,) = measurement.findings
    assert (str(finding.location), finding.reason, finding.metrics) == (
        "train.py:3 in step",
        "it reads a number",
        ("graph_breaks",),
    )
    assert device.asked_to_run


def test_without_time_for_another_step_all_compiled_code_counts() -> None:
    device = Compiling()
    none_left = Deadline.after(0.001, device.now_ns)

    found = find_compilation(device, Subject(step=int), 10.0, none_left)

    assert (found.exact["graph_breaks"], device.asked_to_run) == (1, False)


class Profiled(Clockwork):
    """Its steps take 200 ms, and under the profiler *slowed* times as long."""

    def __init__(self, slowed: int) -> None:
        super().__init__(lambda _: 200.0)
        self.profiled: list[int] = []
        self._slowed = slowed

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        self.profiled.append(len(batches))
        self._clock_ns += round(200e6 * (self._slowed - 1) * len(batches))
        return super().profile(step, batches)


@pytest.mark.parametrize(
    ("slowed", "seconds", "profiled"),
    [(1, 3600, [3]), (1, 60, [1, 3]), (20, 60, [1, 3]), (100, 60, [1])],
)
def test_steps_are_profiled_one_alone_where_three_have_no_room(
    slowed: int, seconds: int, profiled: list[int]
) -> None:
    device = Profiled(slowed)

    measured = in_a_minute(device, Subject(step=device.step), seconds=seconds)

    assert device.profiled == profiled
    assert measured.measurement.exact["syncs"] == 0


@pytest.mark.parametrize(
    ("tests", "cap", "seconds"), [(1, 2, 27), (1, 15, 105), (1, 60, 240), (3, 2, 81)]
)
def test_a_process_ends_soon_where_little_time_is_allowed(
    tests: int, cap: float, seconds: float
) -> None:
    assert longest_run(tests, cap) == seconds
