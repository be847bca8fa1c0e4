"""From what the profiled steps spend their time with to what to change first."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from ..devices.protocol import TraceEvent
from ..model.diagnosis import FULL
from ..model.diagnosis import Bottleneck
from ..model.diagnosis import Diagnosis
from ..model.diagnosis import Part
from ..model.environment import DeviceKind
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.gpu_metric import BUSY
from ..model.loader_metric import LOADER_WAIT
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.metric import H2D_BYTES
from ..model.metric import LATENCY_MS
from ..model.metric import STEP_MS
from .busy import NO_KERNEL
from .busy import find_busy
from .communication import joined
from .communication import uncovered
from .loading import loader_spans
from .spent import Spent
from .spent import find_spent
from .trace import parse


LEAST: Final = 0.5
"""Percent of a step below which a part is not worth a word."""

WAITS: Final = frozenset({FindingKind.SYNC, FindingKind.COPY})
"""What a device without a clock can count."""


def diagnosed(measurement: Measurement, events: Sequence[TraceEvent]) -> Measurement:
    """Add what the trace of its profiled steps says that the step waits for."""
    kind = measurement.environment.hardware.kind
    busy = find_busy(events)
    if busy is None:
        if kind is DeviceKind.CUDA:
            unmeasured = {**measurement.unmeasured, BUSY.name: NO_KERNEL}
            return replace(measurement, unmeasured=unmeasured)
        on_host = diagnosis_on_host(events, measurement) if _is_host(kind) else None
        return replace(measurement, diagnosis=on_host)
    diagnosis = diagnosis_of(find_spent(events), measurement.times)
    return replace(
        measurement,
        times={**measurement.times, BUSY.name: Distribution.of([busy.percent])},
        diagnosis=replace(diagnosis, copying_percent=busy.copying_percent),
    )


def _is_host(kind: DeviceKind) -> bool:
    return kind is DeviceKind.CPU


def diagnosis_of(
    spent: Sequence[Spent], times: Mapping[str, Distribution]
) -> Diagnosis:
    """Rank what a profiled step is *spent* with, at least one part.

    The profiler makes launching slower, and no kernel: by what a profiled step takes
    longer than a timed one, less is said of launches.
    """
    spent = _without_profiler(spent, times.get(STEP_MS.name))
    spent = _with_loader(spent, times.get(LOADER_WAIT.name))
    total = sum(part.ms for part in spent)
    parts = [
        Part(
            bottleneck=part.bottleneck,
            percent=100 * part.ms / total,
            blocked_percent=min(100.0, 100 * part.blocked_ms / total),
            per_step=part.per_step,
            location=part.location,
        )
        for part in spent
    ]
    return Diagnosis(parts=tuple(_ranked(parts)), isolated=_isolated(times))


def _without_profiler(
    spent: Sequence[Spent], step_ms: Distribution | None
) -> list[Spent]:
    total = sum(part.ms for part in spent)
    excess = max(0.0, total - step_ms.q50) if step_ms else 0.0
    return [
        replace(part, ms=max(0.0, part.ms - excess))
        if part.bottleneck is Bottleneck.LAUNCHES
        else part
        for part in spent
    ]


def _with_loader(
    spent: Sequence[Spent], waiting: Distribution | None
) -> Sequence[Spent]:
    """Lay idle time to a loader of which the trace knows nothing, and that is waited for."""
    named = {part.bottleneck: part for part in spent}
    late = named.get(Bottleneck.LAUNCHES)
    if waiting is None or late is None or Bottleneck.LOADER in named:
        return spent
    waited = waiting.q50 / 100 * sum(part.ms for part in spent)
    ms = min(waited, late.ms)
    loader = Spent(bottleneck=Bottleneck.LOADER, ms=ms, blocked_ms=waited)
    others = [part for part in spent if part is not late]
    return [*others, replace(late, ms=late.ms - ms), loader]


def _ranked(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield waits, the longest first; the GPU behind them, unless it is what they wait for."""
    known = [p for p in parts if p.percent is not None and p.percent >= LEAST]
    largest = sorted(known, key=lambda part: -(part.percent or 0.0))
    gpu = [part for part in largest if part.bottleneck is Bottleneck.GPU]
    waits = [part for part in largest if part.bottleneck is not Bottleneck.GPU]
    is_full = any((part.percent or 0.0) >= FULL for part in gpu)
    yield from (*gpu, *waits) if is_full else (*waits, *gpu)


def _isolated(times: Mapping[str, Distribution]) -> float | None:
    step, latency = times.get(STEP_MS.name), times.get(LATENCY_MS.name)
    if step is None or latency is None or step.q50 <= 0:
        return None
    return latency.q50 / step.q50


def diagnosis_on_host(
    events: Sequence[TraceEvent], measurement: Measurement
) -> Diagnosis | None:
    """Tell the loader from the rest where host and device are one; ``None`` of no use.

    What was measured without the profiler, which makes operations longer, comes first.
    """
    metric = measurement.times.get(LOADER_WAIT.name)
    waited = metric.q50 if metric else _loaded_percent(events)
    counted = _counted(measurement.findings)
    if waited < LEAST and not counted:
        return None
    loader = Part(bottleneck=Bottleneck.LOADER, percent=waited)
    host = Part(bottleneck=Bottleneck.HOST, percent=100 - waited)
    parts = [loader] if waited >= LEAST else []
    return Diagnosis(parts=(*parts, *counted, host))


def _loaded_percent(events: Sequence[TraceEvent]) -> float:
    steps = joined((s.start_us, s.end_us) for s in parse(events).steps)
    loading = joined((s.start_us, s.end_us) for s in loader_spans(events))
    total = sum(end - start for start, end in steps)
    if not 0 < total < inf:
        return 0.0
    return 100 * (1 - uncovered(steps, loading) / total)


def diagnosis_of_counts(findings: Sequence[Finding]) -> Diagnosis | None:
    """Say without a clock what a GPU would be kept from; ``None`` where nothing is found."""
    counted = _counted(findings)
    return Diagnosis(parts=counted) if counted else None


def _counted(findings: Sequence[Finding]) -> tuple[Part, ...]:
    """Count the waits, syncs first; one for a copy to the device is that copy's."""
    copied = {(f.op, f.location) for f in findings if H2D_BYTES.name in f.metrics}
    waits = [f for f in findings if f.kind in WAITS and f.metrics]
    copies = [
        f for f in waits if f.kind is FindingKind.COPY or (f.op, f.location) in copied
    ]
    syncs = [f for f in waits if f not in copies]
    found = ((Bottleneck.SYNCS, syncs), (Bottleneck.COPIES, copies))
    return tuple(_part(part, group) for part, group in found if group)


def _part(bottleneck: Bottleneck, findings: Sequence[Finding]) -> Part:
    worst = max(findings, key=lambda finding: finding.per_step)
    return Part(
        bottleneck=bottleneck,
        per_step=sum(finding.per_step for finding in findings),
        location=worst.location,
    )
