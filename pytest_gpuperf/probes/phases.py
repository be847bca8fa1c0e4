"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from statistics import fmean
from typing import Final

from ..devices.blind_trace import saw_device_work
from ..devices.protocol import Device
from ..model.environment import DeviceKind
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
from .deadline import Deadline
from .latency import Latency
from .latency import time_isolated_steps
from .launches import count_launches
from .memory import measure_memory
from .memory import remarks_on
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


PROFILED_STEPS: Final = 3

CONTENTION: Final = 0.05
"""Share of a run spent waiting for a core above which its times are not blamed on code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement and what the last step returned."""

    measurement: Measurement
    result: object


def measure(device: Device, subject: Subject, *, test: str, seconds: float) -> Measured:
    """Run every phase on *subject* and return its measurement.

    *seconds* caps the cost on the device's host clock; phases that no longer fit are
    left out, and their metrics say so. Raises ``PreflightError``, ``StepError`` and
    whatever the step raises.
    """
    device.preflight()
    subject = replace(subject, step=device.prepare(subject.step, test))
    deadline = Deadline.after(seconds, device.now_ns)
    start_ns = device.now_ns()
    result = subject.run_once()
    device.synchronize()
    first_ms = (device.now_ns() - start_ns) / 1e6
    if not deadline.leaves(first_ms):
        return Measured(measurement=_only_once(device, test, first_ms), result=result)
    before = time_sentinels(device)
    measurement = _phases(device, subject, deadline, test)
    measurement = _witnessed(measurement, before, time_sentinels(device))
    if deadline.leaves(first_ms):
        result = subject.run_once()
    return Measured(measurement=measurement, result=result)


def _only_once(device: Device, test: str, first_ms: float) -> Measurement:
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times={STEP_MS.name: Distribution.of([first_ms])},
        samples={STEP_MS.name: (first_ms,)},
        unmeasured=device.unmeasurable,
        dirty=("the time cap left room for one step, cold",),
    )
    return cut_short(measurement)


def _phases(
    device: Device, subject: Subject, deadline: Deadline, test: str
) -> Measurement:
    warmth = warm_up(device, subject, deadline)
    timing = time_rounds(device, subject, warmth.step_ms, deadline)
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times=_times(timing) | _slope(warmth, timing),
        samples={STEP_MS.name: thinned([r.step_ms for r in timing.rounds])},
        unmeasured=device.unmeasurable,
        missed={SLOPE.name: timing.disturbed} if timing.disturbed else {},
        dirty=tuple(_dirt(timing, warmth.unsteady)),
        board=Board(gpu=device.fingerprint(), sm_mhz=device.clock_mhz()),
    )
    if not deadline.leaves(warmth.step_ms * PROFILED_STEPS):
        return cut_short(measurement)
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
    batches = [subject.arguments() for _ in range(PROFILED_STEPS)]
    events = device.profile(subject.step, batches)
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
        remarks=tuple(remarks_on(memory.exact)),
    )
    on_gpu = device.kind is DeviceKind.CUDA
    if not on_gpu:
        return measurement
    launched = {**measurement.exact, **count_launches(events)}
    return _with_traffic(replace(measurement, exact=launched), find_traffic(events))


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


def _dirt(timing: Timing, unsteady: str | None) -> list[str]:
    reasons = [*([unsteady] if unsteady else []), *timing.dirty]
    shares = [r.waiting_share for r in timing.rounds if r.waiting_share is not None]
    if shares and fmean(shares) > CONTENTION:
        share = f"{CONTENTION:.0%}"
        reasons.append(f"the process waited for a core over {share} of the time")
    return reasons


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
    reason = "the time cap was reached before this phase; raise --gpuperf-seconds"
    timed = STEP_MS.name in measurement.times
    untold = {SLOPE} if timed and SLOPE.name not in measurement.times else set()
    missed = {
        metric.name: reason
        for metric in METRICS.values()
        if (metric.kind is Kind.EXACT or metric in {LATENCY_MS, *untold})
        and metric.name not in measurement.unmeasured
        and metric not in RANKED
    }
    return replace(measurement, missed={**missed, **measurement.missed})
