"""The phases after the timed rounds: each disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from statistics import median
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.base import TraceEvent
from ..devices.profiler import saw_device_work
from ..model.environment import Capability
from ..model.environment import DeviceKind
from ..model.finding import FULL
from ..model.finding import Bottleneck
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.measurement import location
from ..model.measurement import thinned
from ..model.metrics import ENQUEUE_MS
from ..model.metrics import LATENCY_MS
from ..model.metrics import METRICS
from ..model.metrics import MFU
from ..model.metrics import PEAK_ALLOCATED
from ..model.metrics import SLOPE
from ..model.metrics import SPAN_MS
from ..model.metrics import STEP_MS
from ..model.metrics import SYNCS
from ..model.metrics import limited_by
from .bottleneck import diagnosed
from .bottleneck import find_spent
from .compilation import Compilation
from .compilation import find_compilation
from .copies import Traffic
from .copies import find_traffic
from .further_steps import Further
from .gpu_activity import count_launches
from .gpu_activity import least_launches
from .gpu_activity import replays_graphs
from .memory import MEMORY_STEPS
from .memory import Memory
from .memory import measure_memory
from .profile import UNKNOWN_ALLOWANCES
from .profile import Profiled
from .profile import profile_period
from .profile import profile_with_lines
from .step import Subject
from .syncs import Syncs
from .syncs import find_syncs
from .time_share import COMPILED_NAMES
from .time_share import LATENCY_NAMES
from .time_share import LATER
from .time_share import MEMORY_NAMES
from .time_share import OPERATIONS_NAMES
from .time_share import TRACE
from .time_share import TimeShare
from .timing import Latency
from .timing import time_isolated_steps


CUT_SHORT: Final = "the time cap was reached before this phase; raise --gpuperf-seconds"

PEAKS: Final = frozenset(m.name for m in limited_by(str(PEAK_ALLOCATED.budget)))

UNSEEN_GRAPHS: Final = (
    "a CUDA graph is replayed by other means than torch.cuda.CUDAGraph, "
    "and what its replays use is in no peak"
)

LEAST_COMPILED_STEPS: Final = 2
"""Steps that counts and sizes need at least: one for memory, one for the trace."""

ON_THE_GPU: Final = frozenset({Bottleneck.GPU, Bottleneck.COMMUNICATION})
"""What takes a step's time while the GPU works, wherever the line is."""

EXACT_STEPS: Final = MEMORY_STEPS + 1
"""Steps for which the isolated ones leave time."""


def disturbing_phases(
    device: MeasuringDevice,
    subject: Subject,
    share: TimeShare,
    measurement: Measurement,
    step_ms: float,
) -> Measurement:
    """Add to *measurement* all that is not read off timed rounds.

    If the cap leaves no room, phases that nobody asks for are left out, and their
    metrics say so.
    """
    # The order is that of disturbance: isolated steps are timed before anything
    # watches, and the compiler is asked last, as its question may compile again.
    has_room = share.cap.leaves(LEAST_COMPILED_STEPS * step_ms)
    found = Later()
    if share.cap.reserving(LEAST_COMPILED_STEPS * step_ms).leaves(step_ms):
        until = share.cap.reserving(EXACT_STEPS * step_ms)
        found.latency = time_isolated_steps(device, subject, step_ms, until)
    if has_room or share.may_overrun(MEMORY_NAMES, step_ms):
        # The trace takes one step, and the compiler's question another.
        others = 1 + share.asks_for(COMPILED_NAMES)
        until = share.until(MEMORY_NAMES).reserving(others * step_ms)
        found.memory = measure_memory(device, subject, step_ms, until, share.cap)
    if has_room or share.may_overrun(TRACE, step_ms):
        found.profiled = profile_with_lines(
            device, subject, step_ms, (share.cap, share.until(TRACE)), needs_lines
        )
        if device.kind.has(Capability.KERNELS) and not saw_device_work(
            found.profiled.events
        ):
            return untouched(measurement)
        if subject.period is not None and device.ranked is None:
            events = found.profiled.events
            found.further = profile_period(device, subject, events, share.limit)
    if has_room or share.may_overrun(COMPILED_NAMES, step_ms):
        until = share.until(COMPILED_NAMES)
        found.compilation = find_compilation(device, subject, step_ms, until)
    measurement = found.added_to(measurement, device.kind)
    # Last of all: a dispatch mode runs the step as eager code.
    return _with_mfu(measurement, device, subject, share, step_ms)


def _with_mfu(
    measurement: Measurement,
    device: MeasuringDevice,
    subject: Subject,
    share: TimeShare,
    step_ms: float,
) -> Measurement:
    """Add the share of the GPU's peak that the step reaches, if that is asked for."""
    if not share.asks_for(OPERATIONS_NAMES) or STEP_MS.name not in measurement.times:
        return measurement
    if not share.limit.leaves(step_ms):
        return measurement.missing({MFU.name: CUT_SHORT})
    at_peak = device.at_peak(subject.step, subject.arguments())
    device.synchronize()
    if at_peak.ms is None:
        return measurement.lacking({MFU.name: at_peak.why})
    # Of the time that is judged: another one would contradict it.
    ms = location(STEP_MS, measurement.times[STEP_MS.name], device.kind)
    reached = Distribution.of([100 * at_peak.ms / ms])
    return replace(
        measurement,
        times={**measurement.times, MFU.name: reached},
        remarks=(*measurement.remarks, f"{MFU.name}: {at_peak.why}"),
    )


@dataclass(slots=True)
class Later:
    """What the phases found; ``None`` for a phase that had no room."""

    latency: Latency | None = None
    memory: Memory | None = None
    profiled: Profiled | None = None
    further: Further | None = None
    compilation: Compilation | None = None

    def added_to(self, measurement: Measurement, kind: DeviceKind) -> Measurement:
        """Return *measurement* with all of it, and what is missing by its reason."""
        compilation = self.compilation or Compilation()
        memory = self.memory or Memory(exact={})
        findings = (*compilation.findings, *memory.findings)
        measurement = replace(
            measurement.lacking(compilation.unmeasured),
            exact={**measurement.exact, **memory.exact, **compilation.exact},
            findings=(*measurement.findings, *findings),
            remarks=(*measurement.remarks, *memory.remarks),
        )
        measurement = _with_latency(measurement, self.latency)
        measurement = _with_trace(measurement, self.profiled, kind)
        if self.further is not None:
            measurement = self.further.added_to(measurement)
        if self._graphs_are_unseen:
            measurement = _without_peaks(measurement)
        return cut_short(measurement, self._left_out | memory.missed)

    @property
    def _graphs_are_unseen(self) -> bool:
        """Whether graphs are replayed that the phase of memory did not see."""
        seen = self.memory is not None and self.memory.graph_bytes is not None
        return not seen and replays_graphs(
            self.profiled.events if self.profiled else ()
        )

    @property
    def _left_out(self) -> frozenset[str]:
        """Name the metrics of the phases that had no room."""
        phases = (
            (self.latency, LATENCY_NAMES),
            (self.memory, MEMORY_NAMES),
            (self.profiled, TRACE),
            (self.compilation, COMPILED_NAMES),
        )
        return frozenset().union(*(names for found, names in phases if found is None))


def _with_latency(measurement: Measurement, latency: Latency | None) -> Measurement:
    if latency is None:
        return measurement
    samples = thinned(latency.latency_ms)
    return replace(
        measurement,
        times={**measurement.times, **_isolated_times(latency, measurement)},
        unwaited={
            **measurement.unwaited,
            LATENCY_MS.name: median(latency.unwaited_ms),
        },
        samples={**measurement.samples, LATENCY_MS.name: samples},
    )


def _without_peaks(measurement: Measurement) -> Measurement:
    """Take out the peaks of a step whose graphs use memory that no peak counts."""
    kept = {n: v for n, v in measurement.exact.items() if n not in PEAKS}
    lost = {n: UNSEEN_GRAPHS for n in measurement.exact if n in PEAKS}
    return replace(measurement, exact=kept).missing(lost)


def needs_lines(events: Sequence[TraceEvent]) -> bool:
    """Whether anything in the trace of a profile asks for the line that causes it."""
    if find_syncs(events).findings or find_traffic(events).findings:
        return True
    spent = find_spent(events)
    idle_ms = sum(part.ms for part in spent if part.bottleneck not in ON_THE_GPU)
    return idle_ms > (1 - FULL / 100) * sum(part.ms for part in spent)


def _with_trace(
    measurement: Measurement, profiled: Profiled | None, kind: DeviceKind
) -> Measurement:
    if profiled is None:
        return measurement
    events = profiled.events
    measurement = _with_syncs(measurement, find_syncs(events), profiled)
    if kind.has(Capability.KERNELS):
        launched = {**measurement.exact, **count_launches(events)}
        least = least_launches(events)
        measurement = replace(measurement, exact=launched, least=least)
        measurement = _with_traffic(measurement, find_traffic(events))
    return diagnosed(measurement, events)


def _with_syncs(
    measurement: Measurement, syncs: Syncs, profiled: Profiled
) -> Measurement:
    measurement = replace(
        measurement,
        findings=(*syncs.findings, *measurement.findings),
        remarks=(*measurement.remarks, *filter(None, [profiled.remark])),
    )
    if profiled.may_be_allowed:
        return measurement.missing({SYNCS.name: UNKNOWN_ALLOWANCES})
    exact = {**measurement.exact, SYNCS.name: syncs.per_step}
    return replace(measurement, exact=exact)


def _with_traffic(measurement: Measurement, traffic: Traffic) -> Measurement:
    return replace(
        measurement.lacking(traffic.unmeasured),
        exact={**measurement.exact, **traffic.exact},
        findings=(*measurement.findings, *traffic.findings),
    )


def _isolated_times(
    latency: Latency, measurement: Measurement
) -> Mapping[str, Distribution]:
    times = {LATENCY_MS.name: Distribution.of(latency.latency_ms)}
    # Without streams nothing is enqueued: the step just runs, so the two times are one.
    if SPAN_MS.name in measurement.times:
        times[ENQUEUE_MS.name] = Distribution.of(latency.enqueue_ms)
    return times


def untouched(measurement: Measurement) -> Measurement:
    """Remove all numbers: a step that ran only on the host must not look clean."""
    reason = "the step never touched the GPU"
    return replace(
        measurement,
        times={},
        samples={},
        exact={},
        unmeasured=dict.fromkeys(METRICS, reason),
    )


def cut_short(
    measurement: Measurement, metrics: Collection[str] = LATER
) -> Measurement:
    """Say of *metrics*, those of all later phases, that the time cap left no room.

    The same is said of the slope, if times were read and were too few for one.
    """
    timed = STEP_MS.name in measurement.times
    unseen = {SLOPE.name} if timed and SLOPE.name not in measurement.times else set()
    return measurement.missing(
        {
            name: CUT_SHORT
            for name in METRICS
            if name in {*metrics, *unseen} and not measurement.why_none(name)
        }
    )
