"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from ..devices.blind_trace import saw_device_work
from ..devices.protocol import Device
from ..model.environment import DeviceKind
from ..model.gpu_metric import BUSY
from ..model.loader_metric import LOADER_WAIT
from ..model.measurement import Board
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.measurement import thinned
from ..model.metric import ENQUEUE_MS
from ..model.metric import LATENCY_MS
from ..model.metric import METRICS
from ..model.metric import PROCESS_MS
from ..model.metric import SPAN_MS
from ..model.metric import STEP_MS
from ..model.metric import SYNCS
from ..model.metric import Kind
from ..model.rank_metric import RANKED
from ..model.step_metric import SLOPE
from .compiled import find_compilation
from .contention import doubts
from .contention import moment_of
from .contention import others_share
from .deadline import Deadline
from .diagnosis import diagnosed
from .following import Follow
from .following import nobody
from .latency import Latency
from .latency import time_isolated_steps
from .launches import count_launches
from .loader_wait import with_loader_wait
from .memory import measure_memory
from .memory import remarks_on
from .profiling import PROFILED_STEPS
from .profiling import profile_steps
from .sentinel import time_sentinels
from .slope import slope_of
from .subject import Subject
from .syncs import find_syncs
from .timing import Timing
from .timing import time_rounds
from .traffic import Traffic
from .traffic import find_traffic
from .warmup import Warmth
from .warmup import warm_up


CUT_SHORT: Final = "the time cap was reached before this phase; raise --gpuperf-seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement and what the last step returned."""

    measurement: Measurement
    result: object


def measure(
    device: Device,
    subject: Subject,
    *,
    test: str,
    seconds: float,
    follow: Follow = nobody,
) -> Measured:
    """Run every phase on *subject* and return its measurement.

    *seconds* caps the cost on the device's host clock; phases that no longer fit are
    left out, and their metrics say so. *follow* is told how far it is. Raises
    ``PreflightError``, ``StepError`` and whatever the step raises.
    """
    device.preflight()
    subject = subject.prepared(device, test)
    deadline = Deadline.after(seconds, device.now_ns)
    start_ns = device.now_ns()
    result = subject.run_once()
    device.synchronize()
    first_ms = (device.now_ns() - start_ns) / 1e6
    if not deadline.leaves(first_ms):
        measurement = _only_once(device, subject, test, first_ms)
        return Measured(measurement=measurement, result=result)
    before = time_sentinels(device)
    measurement = _phases(device, subject, deadline, test, follow)
    measurement = _witnessed(measurement, before, time_sentinels(device))
    if deadline.leaves(first_ms):
        result = subject.run_once()
    return Measured(measurement=measurement, result=result)


def _only_once(
    device: Device, subject: Subject, test: str, first_ms: float
) -> Measurement:
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times={STEP_MS.name: Distribution.of([first_ms])},
        samples={STEP_MS.name: (first_ms,)},
        unmeasured=device.unmeasurable,
        dirty=("the time cap left room for one step, cold",),
    )
    measurement = cut_short(measurement)
    if subject.batches is None:
        return measurement
    missed = {**measurement.missed, LOADER_WAIT.name: CUT_SHORT}
    return replace(measurement, missed=missed)


def _phases(
    device: Device, subject: Subject, deadline: Deadline, test: str, follow: Follow
) -> Measurement:
    warmth = warm_up(device, subject, deadline, follow)
    start = moment_of(device)
    timing = time_rounds(device, subject, warmth.step_ms, deadline, follow)
    others = others_share(start, moment_of(device)) if subject.batches else None
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times=_times(timing) | _slope(warmth, timing),
        samples={STEP_MS.name: thinned([r.step_ms for r in timing.rounds])},
        unmeasured=device.unmeasurable,
        missed={SLOPE.name: timing.disturbed} if timing.disturbed else {},
        dirty=tuple(_dirt(timing, warmth.unsteady, others)),
        board=Board(gpu=device.fingerprint(), sm_mhz=device.clock_mhz()),
    )
    if subject.batches is not None:
        waits = [r.loader_wait_pct for r in timing.rounds]
        shares = [wait for wait in waits if wait is not None]
        measurement = with_loader_wait(measurement, subject.batches, shares)
    if not deadline.leaves(warmth.step_ms * PROFILED_STEPS):
        return cut_short(measurement)
    follow("memory and syncs")
    return disturbing_phases(device, subject, deadline, measurement, warmth.step_ms)


def disturbing_phases(
    device: Device,
    subject: Subject,
    deadline: Deadline,
    measurement: Measurement,
    step_ms: float,
) -> Measurement:
    """Add to *measurement* all that is not read off timed rounds."""
    latency = time_isolated_steps(device, subject, step_ms, deadline)
    memory = measure_memory(device, subject, step_ms, deadline)
    events = profile_steps(device, subject, step_ms, deadline)
    if device.kind is DeviceKind.CUDA and not saw_device_work(events):
        return untouched(measurement)
    syncs = find_syncs(events)
    compilation = find_compilation(device, subject, step_ms, deadline)
    measurement = replace(
        measurement,
        times={**measurement.times, **_isolated_times(latency, measurement)},
        samples={**measurement.samples, LATENCY_MS.name: thinned(latency.latency_ms)},
        exact={**memory.exact, SYNCS.name: syncs.per_step, **compilation.exact},
        unmeasured={**measurement.unmeasured, **compilation.unmeasured},
        findings=(*syncs.findings, *compilation.findings, *memory.findings),
        remarks=(*measurement.remarks, *remarks_on(memory.exact)),
    )
    if device.kind is DeviceKind.CUDA:
        launched = {**measurement.exact, **count_launches(events)}
        measurement = replace(measurement, exact=launched)
        measurement = _with_traffic(measurement, find_traffic(events))
    return diagnosed(measurement, events)


def _with_traffic(measurement: Measurement, traffic: Traffic) -> Measurement:
    return replace(
        measurement,
        exact={**measurement.exact, **traffic.exact},
        unmeasured={**measurement.unmeasured, **traffic.unmeasured},
        findings=(*measurement.findings, *traffic.findings),
    )


def _witnessed(
    measurement: Measurement,
    before: Mapping[str, tuple[float, ...]],
    after: Mapping[str, tuple[float, ...]],
) -> Measurement:
    """Add what the sentinels took around a step that has times."""
    if not measurement.times:
        return measurement
    seen = {name: (*before[name], *after[name]) for name in before if name in after}
    sentinels = {name: Distribution.of(times) for name, times in seen.items()}
    return replace(measurement, times={**measurement.times, **sentinels})


def _times(timing: Timing) -> dict[str, Distribution]:
    rounds = timing.rounds
    times = {
        STEP_MS.name: Distribution.of([r.step_ms for r in rounds]),
        PROCESS_MS.name: Distribution.of([r.process_ms for r in rounds]),
    }
    spans = [r.span_ms for r in rounds if r.span_ms is not None]
    if spans:
        times[SPAN_MS.name] = Distribution.of(spans)
    return times


def _slope(warmth: Warmth, timing: Timing) -> dict[str, Distribution]:
    """Say how the time of a step changes: a warm-up without an end has more steps of it."""
    if timing.disturbed:
        return {}
    if warmth.unsteady is None:
        slope = slope_of([r.step_ms for r in timing.rounds], timing.steps)
    else:
        late = warmth.samples[len(warmth.samples) // 2 :]
        slope = slope_of(late, warmth.group)
    return {} if slope is None else {SLOPE.name: Distribution.of([slope])}


def _isolated_times(
    latency: Latency, measurement: Measurement
) -> Mapping[str, Distribution]:
    times = {LATENCY_MS.name: Distribution.of(latency.latency_ms)}
    if SPAN_MS.name in measurement.times:  # else nothing is enqueued, it just runs
        times[ENQUEUE_MS.name] = Distribution.of(latency.enqueue_ms)
    return times


def _dirt(timing: Timing, unsteady: str | None, others: float | None) -> list[str]:
    shares = [r.waiting_share for r in timing.rounds if r.waiting_share is not None]
    return [
        *([unsteady] if unsteady else []),
        *timing.dirty,
        *doubts(shares, others),
    ]


def untouched(measurement: Measurement) -> Measurement:
    """Leave no number of *measurement*: a step that ran on the host alone must not look clean."""
    reason = "the step never touched the GPU"
    return replace(
        measurement,
        times={},
        samples={},
        exact={},
        unmeasured=dict.fromkeys(METRICS, reason),
    )


def cut_short(measurement: Measurement) -> Measurement:
    """Say of every metric of a later phase that the time cap left none."""
    timed = STEP_MS.name in measurement.times
    untold = {SLOPE} if timed and SLOPE.name not in measurement.times else set()
    missed = {
        metric.name: CUT_SHORT
        for metric in METRICS.values()
        if (metric.kind is Kind.EXACT or metric in {LATENCY_MS, BUSY, *untold})
        and metric.name not in measurement.unmeasured
        and metric not in RANKED
    }
    return replace(measurement, missed={**missed, **measurement.missed})
