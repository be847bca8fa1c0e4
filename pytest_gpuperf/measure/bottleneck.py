"""From what the profiled steps spend their time with to what to change first."""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Final

from ..devices.base import TraceEvent
from ..model.environment import Capability
from ..model.finding import FULL
from ..model.finding import Bottleneck
from ..model.finding import Diagnosis
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Location
from ..model.finding import Part
from ..model.finding import StepTimeline
from ..model.finding import Stretches
from ..model.finding import Wait
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.metrics import BUSY
from ..model.metrics import H2D_BYTES
from ..model.metrics import LATENCY_MS
from ..model.metrics import LOADER_WAIT
from ..model.metrics import STEP_MS
from .dataloader import loader_spans
from .gpu_activity import NO_KERNEL
from .gpu_activity import Interval
from .gpu_activity import Window
from .gpu_activity import Work
from .gpu_activity import WorkKind
from .gpu_activity import calls_by_correlation
from .gpu_activity import find_busy
from .gpu_activity import joined
from .gpu_activity import length_of
from .gpu_activity import uncovered
from .gpu_activity import window_of
from .gpu_activity import windows_of
from .gpu_activity import work_in
from .trace import TO_PAGEABLE
from .trace import Trace
from .trace import Transaction
from .trace import functions_around
from .trace import parse
from .trace import transactions


# Attributes the idle time of the GPU to waits of the host.
#
# While the host is blocked in a wait, it prepares nothing. Without the wait, all that
# it does later would come earlier by as much. So the idle time after a wait is
# attributed to that wait, up to the time that it took: no more could be gained without
# it. What is left is attributed to waits for the loader in the same way, and the rest to
# what the host does in it: work and launch.

Blame = tuple[Bottleneck, Location | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    """A wait of the host in the step of this index, blocked for ``length_us``."""

    step: int
    start_us: float
    end_us: float
    length_us: float
    blame: Blame


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """When the host waits for the loader, in and before the window, and where."""

    intervals: Sequence[Interval] = ()
    location: Location | None = None

    def waits(self) -> Iterator[HostWait]:
        """Yield them as waits, of which nobody asks in what step they are."""
        for start_us, end_us in self.intervals:
            yield HostWait(
                step=0,
                start_us=start_us,
                end_us=end_us,
                length_us=end_us - start_us,
                blame=(Bottleneck.LOADER, self.location),
            )


def gaps_between(occupied: Sequence[Interval], within: Interval) -> Iterator[Interval]:
    """Yield the parts of *within* that *occupied*, as ``joined``, leaves free."""
    at, end = within
    for first, last in occupied:
        if first > at:
            yield at, min(first, end)
        at = max(at, last)
    if at < end:
        yield at, end


@dataclass(slots=True)
class _Debt:
    """A wait, and how much idle time may still be attributed to it."""

    wait: HostWait
    left_us: float

    def take(self, most_us: float) -> float:
        taken = min(self.left_us, most_us)
        self.left_us -= taken
        return taken


def blamed_gaps(
    gaps: Sequence[Interval],
    waits: Sequence[HostWait],
    loading: Loading,
    launched_at: Callable[[float], Location | None],
) -> dict[Blame, float]:
    """Return the microseconds of *gaps*, in order of time, by who is to blame.

    *launched_at* returns where the work was launched that ended a gap at this moment.
    """
    lost: dict[Blame, float] = defaultdict(float)
    # Latest first, so that the next wait in time is popped from the end.
    debts = [*waits, *loading.waits()]
    ordered = sorted(debts, key=lambda wait: wait.start_us, reverse=True)
    coming = [_Debt(wait, wait.length_us) for wait in ordered]
    owed: list[_Debt] = []
    for start_us, end_us in gaps:
        while coming and coming[-1].wait.start_us <= start_us:
            owed.append(coming.pop())
        left = end_us - start_us
        found = (*_behind(owed, left), *_inside(coming, end_us))
        for debt, most_us in sorted(found, key=_is_loaders):
            taken = debt.take(min(left, most_us))
            lost[debt.wait.blame] += taken
            left -= taken
        # A wait can be followed by several gaps; it is dropped once its time is used
        # up.
        owed = [debt for debt in owed if debt.left_us > 0]
        lost[Bottleneck.LAUNCHES, launched_at(end_us)] += left
    return lost


def _is_loaders(found: tuple[_Debt, float]) -> bool:
    return found[0].wait.blame[0] is Bottleneck.LOADER


def _behind(owed: Sequence[_Debt], gap_us: float) -> Iterator[tuple[_Debt, float]]:
    """Yield the waits before a gap, the last one first, and the most of each."""
    for debt in reversed(owed):
        yield debt, gap_us


def _inside(coming: Sequence[_Debt], end_us: float) -> Iterator[tuple[_Debt, float]]:
    """Yield the waits that begin in a gap, and what of it they last."""
    for debt in reversed(coming):
        if debt.wait.start_us >= end_us:
            return
        yield debt, min(debt.wait.end_us, end_us) - debt.wait.start_us


# The time of the profiled steps by activity: each moment belongs to one.
#
# Kernels that compute come first, then collectives that no computation hides, then
# copies that run beside neither. The rest is time in which the GPU has nothing to do.

FROM_HOST_COPY = "HtoD"
PAGEABLE = "(Pageable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Milliseconds of a step that go to one part, and in which it blocks the host.

    ``location`` is where most of them are lost.
    """

    bottleneck: Bottleneck
    ms: float
    blocked_ms: float = 0.0
    per_step: int = 0
    location: Location | None = None


def find_spent(events: Sequence[TraceEvent]) -> tuple[Spent, ...]:
    """Divide the time of the profiled steps, as means; nothing without a kernel."""
    trace, work = parse(events), list(work_in(events))
    window = window_of(trace, work)
    if window is None:
        return ()
    waits = list(_waits(trace, window))
    loading = _loading(trace, events, window)
    lost = _lost(trace, work, window, waits, loading)
    blocked, counts = _blocked(waits, loading, window), _most_in_a_step(waits)
    return tuple(
        Spent(
            bottleneck=part,
            ms=sum(us for (which, _), us in lost.items() if which is part)
            / (1e3 * window.steps),
            blocked_ms=blocked[part] / (1e3 * window.steps),
            per_step=counts.get(part, 0),
            location=_worst(lost, part),
        )
        for part in dict.fromkeys(which for (which, _), us in lost.items() if us > 0)
    )


def _lost(
    trace: Trace,
    work: Sequence[Work],
    window: Window,
    waits: Sequence[HostWait],
    loading: Loading,
) -> dict[Blame, float]:
    computing = window.of(work, WorkKind.KERNEL, WorkKind.FILL)
    collectives = window.of(work, WorkKind.COLLECTIVE)
    copies = window.of(work, WorkKind.COPY)
    kernels = joined([*computing, *collectives])
    occupied = joined([*kernels, *copies])
    gaps = list(gaps_between(occupied, (window.start_us, window.end_us)))
    lost = blamed_gaps(gaps, waits, loading, _launched_at(trace, work))
    lost[Bottleneck.GPU, None] = length_of(computing)
    lost[Bottleneck.COMMUNICATION, None] = uncovered(collectives, computing)
    # Added, as waits for copies may already have lost time at the same place.
    lost[Bottleneck.COPIES, _copied_at(trace, work)] += uncovered(copies, kernels)
    return lost


def _waits(trace: Trace, window: Window) -> Iterator[HostWait]:
    names = {copy.correlation: copy.name for copy in trace.copies if copy.correlation}
    for transaction in transactions(trace):
        calls = [call.span for call in (transaction.copy, transaction.wait) if call]
        name = next(filter(None, (names.get(c.correlation or 0) for c in calls)), "")
        end_us = max(call.end_us for call in calls)
        if end_us > window.start_us and _blocks(transaction, name):
            from_host = FROM_HOST_COPY in name
            part = Bottleneck.COPIES if from_host else Bottleneck.SYNCS
            yield HostWait(
                step=transaction.last.step,
                start_us=min(call.start_us for call in calls),
                end_us=end_us,
                length_us=transaction.duration_us,
                blame=(part, transaction.location),
            )


def _blocks(transaction: Transaction, copy: str) -> bool:
    """Whether the host is blocked: a copy from pageable memory is staged by its call."""
    staged = FROM_HOST_COPY in copy and PAGEABLE in copy
    to_pageable = TO_PAGEABLE.fullmatch(copy) is not None
    return transaction.wait is not None or staged or to_pageable


def _loading(trace: Trace, events: Sequence[TraceEvent], window: Window) -> Loading:
    spans = list(loader_spans(events))
    known = (place for place in functions_around(trace, spans) if place is not None)
    return Loading(
        intervals=joined(
            (span.start_us, span.end_us)
            for span in spans
            if window.start_us < span.end_us and span.start_us < window.end_us
        ),
        location=next(known, None),
    )


def _launched_at(
    trace: Trace, work: Sequence[Work]
) -> Callable[[float], Location | None]:
    """Return a lookup: the function that launched the work that begins at a moment."""
    calls = calls_by_correlation(trace)
    begun = {w.start_us: calls.get(w.correlation or 0) for w in work}
    known = {moment: call for moment, call in begun.items() if call is not None}
    places = functions_around(trace, list(known.values()))
    found: Mapping[float, Location | None] = dict(zip(known, places, strict=True))
    return found.get


def _copied_at(trace: Trace, work: Sequence[Work]) -> Location | None:
    """Return where the longest copy was started, of those with a known line."""
    lasting = {w.correlation: w.end_us - w.start_us for w in work if w.correlation}
    known = [
        (lasting.get(transaction.copy.span.correlation or 0, 0.0), transaction.location)
        for transaction in transactions(trace)
        if transaction.copy is not None
    ]
    return max(known, key=lambda one: one[0], default=(0.0, None))[1]


def _most_in_a_step(waits: Sequence[HostWait]) -> Mapping[Bottleneck, int]:
    """Return how often the step with most of them waits, by part."""
    by_step = Counter((wait.blame[0], wait.step) for wait in waits)
    most: dict[Bottleneck, int] = {}
    for (part, _), count in by_step.items():
        most[part] = max(count, most.get(part, 0))
    return most


def _blocked(
    waits: Sequence[HostWait], loading: Loading, window: Window
) -> Mapping[Bottleneck, float]:
    """Return the microseconds of *window* in which each part blocks the host."""
    blocked: dict[Bottleneck, float] = defaultdict(float)
    blocked[Bottleneck.LOADER] = length_of(window.clipped(loading.intervals))
    for wait in waits:
        inside_us = min(wait.end_us, window.end_us)
        inside_us -= max(wait.start_us, window.start_us)
        blocked[wait.blame[0]] += max(0.0, min(wait.length_us, inside_us))
    return blocked


def _worst(lost: Mapping[Blame, float], part: Bottleneck) -> Location | None:
    """Return where *part* loses most, of the places that are known."""
    known = [
        (us, place) for (which, place), us in lost.items() if which is part and place
    ]
    return max(known, key=lambda one: one[0])[1] if known else None


# One step as two lanes: what the CPU waits for, and what the GPU runs.

MOST_STRETCHES: Final = 50
"""Stretches of one kind that are kept of a step: more cannot be seen apart."""


def find_timeline(events: Sequence[TraceEvent]) -> StepTimeline | None:
    """Return the profiled step of median length; ``None`` if none is whole."""
    trace, work = parse(events), list(work_in(events))
    windows = sorted(windows_of(trace, work), key=lambda window: window.length_us)
    if not windows:
        return None
    step = windows[len(windows) // 2]
    waits = [*_waits(trace, step), *_loading(trace, events, step).waits()]
    longest = sorted(_waits_in(step, waits), key=lambda w: w.start_us - w.end_us)
    return StepTimeline(
        length_us=max(1, round(step.length_us)),
        waits=tuple(sorted(longest[:MOST_STRETCHES], key=lambda w: w.start_us)),
        kernels=_stretches(step, step.of(work, WorkKind.KERNEL, WorkKind.FILL)),
        collectives=_stretches(step, step.of(work, WorkKind.COLLECTIVE)),
        copies=_stretches(step, step.of(work, WorkKind.COPY)),
    )


def _waits_in(step: Window, waits: Iterable[HostWait]) -> Iterator[Wait]:
    for wait in waits:
        for start_us, end_us in _rounded(step, step.clipped([_blocked_in(wait)])):
            part, place = wait.blame
            yield Wait(
                start_us=start_us, end_us=end_us, bottleneck=part, location=place
            )


def _blocked_in(wait: HostWait) -> Interval:
    """Return when a wait blocks the CPU: at its end, if a copy was queued before it."""
    return max(wait.start_us, wait.end_us - wait.length_us), wait.end_us


def _stretches(step: Window, intervals: Sequence[Interval]) -> Stretches:
    """Join neighbours, the nearest first, until there are few enough to be drawn."""
    while len(intervals) > MOST_STRETCHES:
        intervals = _in_pairs(intervals, len(intervals) - MOST_STRETCHES)
    return tuple(_rounded(step, intervals))


def _in_pairs(intervals: Sequence[Interval], most: int) -> Sequence[Interval]:
    """Join at most so many pairs; no three, or gaps of one length were one stretch."""
    gaps = [after[0] - before[1] for before, after in pairwise(intervals)]
    chosen: set[int] = set()
    for index in sorted(range(len(gaps)), key=gaps.__getitem__):
        if len(chosen) < most and not {index - 1, index + 1} & chosen:
            chosen.add(index)
    return [
        (start, intervals[index + 1][1] if index in chosen else end)
        for index, (start, end) in enumerate(intervals)
        if index - 1 not in chosen
    ]


def _rounded(step: Window, intervals: Iterable[Interval]) -> Iterator[tuple[int, int]]:
    for start_us, end_us in intervals:
        yield round(start_us - step.start_us), round(end_us - step.start_us)


LEAST_CAUSE_SHARE: Final = 0.5
"""Percent of a step below which a part is not worth a word."""

WAITING_FINDINGS: Final = frozenset({FindingKind.SYNC, FindingKind.COPY})
"""What a device without a clock can count."""


def diagnosed(measurement: Measurement, events: Sequence[TraceEvent]) -> Measurement:
    """Add what the trace of its profiled steps says that the step waits for."""
    kind = measurement.environment.hardware.kind
    busy = find_busy(events)
    if busy is None:
        if kind.has(Capability.KERNELS):
            return measurement.lacking({BUSY.name: NO_KERNEL})
        is_host = kind.has(Capability.HOST_WORK)
        on_host = diagnosis_on_host(events, measurement) if is_host else None
        return replace(measurement, diagnosis=on_host)
    spent = find_spent(events)
    slowed = _slowed(spent, measurement.times.get(STEP_MS.name))
    percent, copying = (min(100.0, share * slowed) for share in busy)
    return replace(
        measurement,
        times={**measurement.times, BUSY.name: Distribution.of([percent])},
        diagnosis=replace(
            diagnosis_of(spent, measurement.times),
            copying_percent=copying,
            timeline=find_timeline(events),
        ),
    )


def _slowed(spent: Sequence[Spent], step_ms: Distribution | None) -> float:
    """Return by which factor the profiler makes a step longer, 1 without launches.

    CUPTI takes its time for each launch, so a launch-bound step would look idler.
    """
    profiled_ms, plain_ms = (
        sum(part.ms for part in parts)
        for parts in (spent, _without_profiler(spent, step_ms))
    )
    return profiled_ms / plain_ms if plain_ms > 0 else 1.0


def diagnosis_of(
    spent: Sequence[Spent], times: Mapping[str, Distribution]
) -> Diagnosis:
    """Rank what a profiled step is *spent* with, at least one part.

    The profiler makes launches slower and no kernel. So what a profiled step takes
    longer than a timed one is subtracted from the launches.
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
    """Attribute idle time to a loader that the trace does not show."""
    # Only torch's DataLoader puts ranges into the trace. The wait for any other
    # iterable looks like idle time before a launch, and was measured in the timed
    # rounds.
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
    """Yield waits, the longest first, then the GPU; a full GPU comes before them."""
    known = [
        p for p in parts if p.percent is not None and p.percent >= LEAST_CAUSE_SHARE
    ]
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
    """Split a step on the CPU into loader and host; ``None`` if that says nothing.

    A time measured without the profiler is preferred: it makes operations longer.
    """
    metric = measurement.times.get(LOADER_WAIT.name)
    waited = metric.q50 if metric else _loaded_percent(events)
    counted = _counted(measurement.findings)
    if waited < LEAST_CAUSE_SHARE and not counted:
        return None
    loader = Part(bottleneck=Bottleneck.LOADER, percent=waited)
    host = Part(bottleneck=Bottleneck.HOST, percent=100 - waited)
    parts = [loader] if waited >= LEAST_CAUSE_SHARE else []
    return Diagnosis(parts=(*parts, *counted, host))


def _loaded_percent(events: Sequence[TraceEvent]) -> float:
    steps = joined((s.start_us, s.end_us) for s in parse(events).steps)
    loading = joined((s.start_us, s.end_us) for s in loader_spans(events))
    total = sum(end - start for start, end in steps)
    # A step without an end in the trace lasts for ever, and no share can be taken of
    # that.
    if not 0 < total < inf:
        return 0.0
    return 100 * (1 - uncovered(steps, loading) / total)


def diagnosis_of_counts(findings: Sequence[Finding]) -> Diagnosis | None:
    """Rank the counted waits, on a device without a clock; ``None`` without any."""
    counted = _counted(findings)
    return Diagnosis(parts=counted) if counted else None


def _counted(findings: Sequence[Finding]) -> tuple[Part, ...]:
    """Count the waits, syncs first; one for a copy to the device is that copy's."""
    copied = {(f.op, f.location) for f in findings if H2D_BYTES.name in f.metrics}
    waits = [f for f in findings if f.kind in WAITING_FINDINGS and f.metrics]
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
