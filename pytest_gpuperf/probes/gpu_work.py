"""What the GPU did in a trace, and the stretch of time that it is held against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..devices.protocol import TraceEvent
from .communication import IN_KERNELS
from .communication import Interval
from .communication import joined
from .trace import Span
from .trace import Trace
from .trace import number


class WorkKind(Enum):
    """What occupies the GPU."""

    KERNEL = "kernel"
    COLLECTIVE = "collective"
    COPY = "copy"
    FILL = "fill"


CATEGORIES: Final[Mapping[str, WorkKind]] = {
    "kernel": WorkKind.KERNEL,
    "gpu_memcpy": WorkKind.COPY,
    "memcpy": WorkKind.COPY,
    "gpu_memset": WorkKind.FILL,
    "memset": WorkKind.FILL,
}

KERNELS: Final = frozenset({WorkKind.KERNEL, WorkKind.COLLECTIVE})
"""What keeps a GPU busy; those of NCCL are told apart by name."""


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
        kind = CATEGORIES.get(str(event.get("cat")).lower())
        start_us, duration_us = number(event.get("ts")), number(event.get("dur"))
        if event.get("ph") != "X" or kind is None or start_us is None:
            continue
        if kind is WorkKind.KERNEL and IN_KERNELS.search(str(event.get("name"))):
            kind = WorkKind.COLLECTIVE
        end_us = start_us + max(0.0, duration_us or 0.0)
        yield Work(kind, start_us, end_us, _correlation(event))


def _correlation(event: TraceEvent) -> int | None:
    arguments = event.get("args")
    value = arguments.get("correlation") if isinstance(arguments, Mapping) else None
    return value if isinstance(value, int) else None


def window_of(trace: Trace, work: Sequence[Work]) -> Window | None:
    """Return the time from the end of the first step's kernels to that of the last's.

    The profiler waits for the GPU before the first step, which therefore begins with an
    empty queue, as no later one does: it leads in, and does not count. Between the ends
    of two steps on the GPU lie whole steps, whether or not the host runs ahead. Where
    calls cannot be joined with kernels, or only one step has any, the window begins with
    the first step. ``None`` without a step or a kernel.
    """
    kernels = [w for w in work if w.kind in KERNELS]
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
