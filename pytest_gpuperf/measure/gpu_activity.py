"""Work of the GPU in a trace, and the time span that it is compared with."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Final, NamedTuple

from ..devices.base import STEP_RANGE, TraceEvent
from ..model.environment import Capability
from ..model.finding import Finding, FindingKind, Location
from ..model.measurement import Distribution, Measurement
from ..model.metrics import BUSY, LAUNCHES, STEP_MS
from .dataloader import loader_spans
from .trace import (
    ANNOTATIONS,
    Span,
    Trace,
    correlation_of,
    functions_around,
    launches_in,
    number,
    parse,
    transactions,
)


# The share of a step's communication that no computation hides, from a trace.
#
# Communication is exposed while a collective runs while nothing computes. A rank that
# waits for a slower peer does so inside of a collective, so its wait is counted as
# well. Kernels are distinguished by name, as in the overlap of communication and
# computation of Meta's Holistic Trace Analysis: a kernel with nccl in its name
# communicates, all others compute.

Interval = tuple[float, float]
"""Start and end in microseconds of the trace's clock."""

KERNEL: Final = "kernel"

IN_KERNELS: Final = re.compile("[nr]ccl", re.IGNORECASE)

ON_THE_HOST: Final = re.compile(r"(?:gloo|mpi|ucc):\w+")
"""Ranges of a collective, from its start to its end on a thread of the backend."""

COMPUTING: Final = re.compile("aten::")
"""Operations of the host; those of c10d only start a collective or wait for it."""


class Communication(NamedTuple):
    """Milliseconds of a step in which a collective runs, and in which it runs alone."""

    total_ms: float
    exposed_ms: float


def find_communication(events: Sequence[TraceEvent]) -> Communication | None:
    """Return the mean over the steps of a trace; ``None`` if none is to be seen."""
    spans = [event for event in events if event.get("ph") == "X"]
    steps = sum(_is_on_host(e) and e.get("name") == STEP_RANGE for e in spans)
    collectives, computing = _in_kernels(spans) or _on_the_host(spans)
    if not steps or not collectives:
        return None
    total_us = sum(end - start for start, end in collectives)
    exposed_us = uncovered(collectives, computing)
    return Communication(total_us / steps / 1e3, exposed_us / steps / 1e3)


Sides = tuple[list[Interval], list[Interval]]
"""When something communicates, and when something computes."""


def _in_kernels(spans: Sequence[TraceEvent]) -> Sides | None:
    kernels = [e for e in spans if str(e.get("cat")).lower() == KERNEL]
    if not kernels:
        return None
    communicates = [IN_KERNELS.search(str(e.get("name"))) is not None for e in kernels]
    paired = list(zip(kernels, communicates, strict=True))
    return (
        joined(_intervals(e for e, is_one in paired if is_one)),
        joined(_intervals(e for e, is_one in paired if not is_one)),
    )


def _on_the_host(spans: Sequence[TraceEvent]) -> Sides:
    named = [(e, str(e.get("name"))) for e in spans if _is_on_host(e)]
    return (
        joined(_intervals(e for e, name in named if ON_THE_HOST.fullmatch(name))),
        joined(_intervals(e for e, name in named if COMPUTING.match(name))),
    )


def _is_on_host(event: TraceEvent) -> bool:
    return str(event.get("cat")).lower() in ANNOTATIONS


def _intervals(events: Iterable[TraceEvent]) -> Iterator[Interval]:
    for event in events:
        start, duration = number(event.get("ts")), number(event.get("dur"))
        if start is not None and duration is not None and duration > 0:
            yield start, start + duration


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Return *intervals* in order of time, those that overlap as one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def uncovered(intervals: Sequence[Interval], covers: Sequence[Interval]) -> float:
    """Return how long *intervals* are where *covers* are not; both as ``joined``."""
    length = sum(end - start for start, end in intervals)
    # Both are sorted, so a cover that ends before this interval is dropped for good:
    # one pass over both.
    waiting = list(reversed(covers))
    for start, end in intervals:
        while waiting and waiting[-1][1] <= start:
            waiting.pop()
        for first, last in reversed(waiting):
            if first >= end:
                break
            length -= min(end, last) - max(start, first)
    return length


# Launches of a step on a GPU, and the kernels that they run.


def count_launches(events: Sequence[TraceEvent]) -> Mapping[str, int]:
    """Count those of the step with most; the launch of a whole CUDA graph is one."""
    trace = parse(events)
    return {LAUNCHES.name: _most(trace.step_at(c.start_us) for c in launches_in(trace))}


GRAPH_LAUNCH: Final = re.compile(r"(?:cuda|cu|hip)GraphLaunch\w*")


def replays_graphs(events: Sequence[TraceEvent]) -> bool:
    """Whether a step launches a CUDA graph, by whatever means."""
    trace = parse(events)
    graphs = (call for call in trace.calls if GRAPH_LAUNCH.fullmatch(call.name))
    return any(trace.step_at(graph.start_us) is not None for graph in graphs)


def least_launches(events: Sequence[TraceEvent]) -> Mapping[str, int]:
    """Count the launches of the step with the least, if the steps differ in them."""
    trace = parse(events)
    counts = Counter(trace.step_at(call.start_us) for call in launches_in(trace))
    found = [counts[step] for step in range(len(trace.steps))]
    return {LAUNCHES.name: min(found)} if len(set(found)) > 1 else {}


def _most(steps: Iterable[int | None]) -> int:
    """Return the largest count of one step; what is outside of steps does not count."""
    counts = Counter(step for step in steps if step is not None)
    return max(counts.values(), default=0)


class WorkKind(Enum):
    """What occupies the GPU."""

    KERNEL = "kernel"
    COLLECTIVE = "collective"
    COPY = "copy"
    FILL = "fill"


WORK_CATEGORIES: Final[Mapping[str, WorkKind]] = {
    "kernel": WorkKind.KERNEL,
    "gpu_memcpy": WorkKind.COPY,
    "memcpy": WorkKind.COPY,
    "gpu_memset": WorkKind.FILL,
    "memset": WorkKind.FILL,
}

KERNEL_KINDS: Final = frozenset({WorkKind.KERNEL, WorkKind.COLLECTIVE})
"""What keeps a GPU busy; kernels of NCCL are recognised by name."""


@dataclass(frozen=True, slots=True)
class Work:
    """One kernel, copy or fill, in microseconds of the trace's clock.

    ``correlation`` is that of the call that started it; a graph starts many.
    """

    kind: WorkKind
    start_us: float
    end_us: float
    correlation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stretch of a trace in which so many whole ``steps`` ran."""

    start_us: float
    end_us: float
    steps: int

    @property
    def length_us(self) -> float:
        """Never 0."""
        return self.end_us - self.start_us

    def clipped(self, intervals: Iterable[Interval]) -> list[Interval]:
        """Return what of *intervals* lies inside, joined."""
        inside = (
            (max(start, self.start_us), min(end, self.end_us))
            for start, end in intervals
        )
        return joined((start, end) for start, end in inside if start < end)

    def of(self, work: Iterable[Work], *kinds: WorkKind) -> list[Interval]:
        """Return when work of these *kinds* ran inside, on any stream."""
        return self.clipped((w.start_us, w.end_us) for w in work if w.kind in kinds)


def work_in(events: Iterable[TraceEvent]) -> Iterator[Work]:
    """Read what the GPU did; broken events are left out."""
    for event in events:
        kind = WORK_CATEGORIES.get(str(event.get("cat")).lower())
        start_us, duration_us = number(event.get("ts")), number(event.get("dur"))
        if event.get("ph") != "X" or kind is None or start_us is None:
            continue
        if kind is WorkKind.KERNEL and IN_KERNELS.search(str(event.get("name"))):
            kind = WorkKind.COLLECTIVE
        end_us = start_us + max(0.0, duration_us or 0.0)
        yield Work(kind, start_us, end_us, correlation_of(event))


def window_of(trace: Trace, work: Sequence[Work]) -> Window | None:
    """Return the time from the end of the first step's kernels to that of the last's.

    The profiler waits for the GPU before the first step. So only that step begins with
    an empty queue, and it does not count. Between the ends of two steps on the GPU
    there are whole steps, whether or not the host runs ahead. If calls cannot be
    matched with kernels, or only one step has any, the window begins with the first
    step. ``None`` without a step or a kernel.
    """
    kernels = [w for w in work if w.kind in KERNEL_KINDS]
    if not kernels or not trace.steps:
        return None
    ends = _ends_by_step(trace, kernels)
    if len(ends) > 1 and ends[min(ends)] < max(ends.values()):
        return Window(
            start_us=ends[min(ends)],
            end_us=max(ends.values()),
            steps=max(ends) - min(ends),
        )
    start_us = trace.steps[0].start_us
    end_us = max(kernel.end_us for kernel in kernels)
    if start_us >= end_us:
        return None
    return Window(start_us=start_us, end_us=end_us, steps=len(trace.steps))


def _ends_by_step(trace: Trace, kernels: Iterable[Work]) -> Mapping[int, float]:
    """Return when the last kernel of each step ended, by the calls that started them."""
    by_correlation = calls_by_correlation(trace)
    # Kernels of one step may run after those of the next on another stream: the largest
    # end counts.
    ends: dict[int, float] = defaultdict(float)
    for kernel in kernels:
        call = by_correlation.get(kernel.correlation or 0)
        step = trace.step_at(call.start_us) if call else None
        if step is not None:
            ends[step] = max(ends[step], kernel.end_us)
    return ends


def calls_by_correlation(trace: Trace) -> Mapping[int, Span]:
    """Return the calls that started something on the GPU."""
    return {call.correlation: call for call in trace.calls if call.correlation}


# The share of time in which a GPU is busy, from a trace.
#
# Busy is the share of a window of whole steps in which at least one kernel runs, on any
# stream: the union of their times, not the sum. Copies do not count. NVML's
# utilization is another number: it is sampled, and counts a sample as full if anything
# ran in it (``nvmlUtilization_t``).

NO_KERNEL: Final = "no kernel ran on the GPU in the profiled steps"


def with_busy(measurement: Measurement, events: Sequence[TraceEvent]) -> Measurement:
    """Add how busy the GPU was in the profiled steps, and the lines of its longest gaps.

    CUPTI takes its time for each launch, so a launch-bound step would look idler: what a
    profiled step takes longer than a timed one is no gap of it.
    """
    busy = find_busy(events)
    if busy is None:
        has_kernels = measurement.environment.hardware.kind.has(Capability.KERNELS)
        return (
            measurement.lacking({BUSY.name: NO_KERNEL}) if has_kernels else measurement
        )
    share, step_ms = busy
    timed = measurement.times.get(STEP_MS.name)
    plain = min(1.0, max(share, timed.q50 / step_ms)) if timed else 1.0
    slowed = (1 - share / plain) / (1 - share) if share < 1 else 0.0
    return replace(
        measurement,
        times={
            **measurement.times,
            BUSY.name: Distribution.of([100 * share / plain]),
        },
        findings=(*measurement.findings, *find_gaps(events, slowed)),
    )


def find_busy(events: Sequence[TraceEvent]) -> tuple[float, float] | None:
    """Return the share of the profiled steps in which kernels run, and a step's ms.

    ``None`` if no kernel is to be seen.
    """
    work = list(work_in(events))
    window = window_of(parse(events), work)
    if window is None:
        return None
    kernels = window.of(work, *KERNEL_KINDS)
    busy = sum(end - start for start, end in kernels) / window.length_us
    return (busy, window.length_us / (1e3 * window.steps)) if kernels else None


LEAST_GAP_PERCENT: Final = 5.0
MOST_GAPS: Final = 3


def find_gaps(events: Sequence[TraceEvent], slowed: float = 1.0) -> Iterator[Finding]:
    """Yield the lines at which the GPU has nothing to do for longest.

    A gap is that of the longest wait of the host in it, or else of the launch that ends
    it. *slowed* of each is there without the profiler, too.
    """
    trace, work = parse(events), list(work_in(events))
    window = window_of(trace, work)
    if window is None:
        return
    waits, launched = _waits_of_host(trace, events), _launches_by_start(trace, work)
    idle: dict[Location, float] = defaultdict(float)
    for gap in _gaps(window, window.of(work, *KERNEL_KINDS)):
        place = _longest_wait(waits, gap) or launched.get(gap[1])
        if place is not None:
            idle[place] += 100 * slowed * (gap[1] - gap[0]) / window.length_us
    longest = sorted(idle.items(), key=lambda item: -item[1])[:MOST_GAPS]
    for place, percent in longest:
        if percent >= LEAST_GAP_PERCENT:
            yield Finding(
                kind=FindingKind.IDLE,
                op=None,
                location=place,
                metrics=(BUSY.name,),
                percent=percent,
            )


def _gaps(window: Window, busy: Sequence[Interval]) -> Iterator[Interval]:
    starts = [window.start_us, *(end for _, end in busy)]
    ends = [*(start for start, _ in busy), window.end_us]
    return ((a, b) for a, b in zip(starts, ends, strict=True) if a < b)


HostWait = tuple[float, float, Location]
"""When the host waits for the GPU, a copy or the loader, and where."""


def _waits_of_host(trace: Trace, events: Sequence[TraceEvent]) -> list[HostWait]:
    loads = list(loader_spans(events))
    found = [
        (load.start_us, load.end_us, place)
        for load, place in zip(loads, functions_around(trace, loads), strict=True)
        if place is not None
    ]
    for one in transactions(trace):
        spans = [call.span for call in (one.copy, one.wait) if call]
        if one.location is not None:
            start_us = min(span.start_us for span in spans)
            found.append((start_us, max(s.end_us for s in spans), one.location))
    return sorted(found, key=lambda wait: wait[0])


def _longest_wait(waits: Sequence[HostWait], gap: Interval) -> Location | None:
    before = range(bisect(waits, gap[1], key=lambda wait: wait[0]) - 1, -1, -1)
    inside = takewhile(lambda wait: wait[1] > gap[0], (waits[n] for n in before))
    most = max(
        inside, key=lambda w: min(w[1], gap[1]) - max(w[0], gap[0]), default=None
    )
    return most[2] if most else None


def _launches_by_start(
    trace: Trace, work: Sequence[Work]
) -> Mapping[float, Location | None]:
    """Return the function that launched the work that begins at a moment."""
    calls = calls_by_correlation(trace)
    begun = {w.start_us: calls.get(w.correlation or 0) for w in work}
    known = {moment: call for moment, call in begun.items() if call is not None}
    places = functions_around(trace, list(known.values()))
    return dict(zip(known, places, strict=True))
