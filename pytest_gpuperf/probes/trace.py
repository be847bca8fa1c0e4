"""A profiler's Chrome trace as typed values.

Category and call names changed between 2021 and today (``Operator`` and ``cpu_op``,
``Runtime`` and ``cuda_runtime``, hip names on ROCm): all of them are read. Events that
are broken or say nothing about the host are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from math import isfinite
from typing import Final

from ..devices.protocol import ALLOW_MARKER
from ..devices.protocol import LATE_MARKER
from ..devices.protocol import STEP_RANGE
from ..devices.protocol import SYNC_MARKER
from ..devices.protocol import TraceEvent


Thread = tuple[object, object]
"""Process and thread identifier of an event."""


class SpanKind(Enum):
    """What a span of host time is."""

    STEP = "step"
    MARKER = "marker"
    LATE_MARKER = "late marker"
    ALLOWANCE = "allowance"
    OP = "op"
    CALL = "call"
    FUNCTION = "function"


CATEGORIES: Final[Mapping[str, SpanKind]] = {
    "cpu_op": SpanKind.OP,
    "operator": SpanKind.OP,
    "python_function": SpanKind.FUNCTION,
}

CALLS: Final = re.compile(r"(?:[a-z0-9]+_)?(?:runtime|driver)")
"""Categories of calls into CUDA, HIP and their likes."""

ANNOTATIONS: Final = frozenset({"user_annotation", "cpu_op", "operator"})
"""Where ``record_function`` ranges were put; their GPU-side copies are elsewhere."""

COPIES: Final = frozenset({"gpu_memcpy", "memcpy"})


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time of one thread, in microseconds of the trace's clock."""

    name: str
    thread: Thread
    start_us: float
    end_us: float
    correlation: int | None = None

    @property
    def middle_us(self) -> float:
        """A moment surely inside, whatever the rounding of its ends."""
        return (self.start_us + self.end_us) / 2


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that the GPU made: ``Memcpy HtoD (Pageable -> Device)``.

    ``correlation`` is that of the call that started it; a graph starts many.
    """

    name: str
    start_us: float
    correlation: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The host's side of a trace, and the GPU's copies.

    ``steps`` stand in order of time, all else as in the file. ``calls`` are those into
    the GPU's runtime and driver, ``functions`` are Python's, ``allowances`` are
    ``allow_sync``'s.
    """

    steps: tuple[Span, ...] = ()
    markers: tuple[Span, ...] = ()
    late_markers: tuple[Span, ...] = ()
    ops: tuple[Span, ...] = ()
    calls: tuple[Span, ...] = ()
    functions: tuple[Span, ...] = ()
    allowances: tuple[Span, ...] = ()
    copies: tuple[Copy, ...] = ()

    def step_at(self, moment_us: float) -> int | None:
        """Index of the step that this moment lies in, on whatever thread."""
        index = bisect_right(self.steps, moment_us, key=lambda s: s.start_us) - 1
        if index < 0 or moment_us > self.steps[index].end_us:
            return None
        return index


def parse(events: Iterable[TraceEvent]) -> Trace:
    """Read trace events of any age; nothing raises for a broken one."""
    spans: dict[SpanKind, list[Span]] = defaultdict(list)
    copies: list[Copy] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        name, category = str(event.get("name")), str(event.get("cat")).lower()
        kind = _kind(name, category)
        if kind is not None:
            _append(spans[kind], _span(event, name, kind))
        elif category in COPIES:
            copies.extend(_copies(event, name))
    return Trace(
        steps=tuple(sorted(spans[SpanKind.STEP], key=lambda s: s.start_us)),
        markers=tuple(spans[SpanKind.MARKER]),
        late_markers=tuple(spans[SpanKind.LATE_MARKER]),
        ops=tuple(spans[SpanKind.OP]),
        calls=tuple(spans[SpanKind.CALL]),
        functions=tuple(spans[SpanKind.FUNCTION]),
        allowances=tuple(spans[SpanKind.ALLOWANCE]),
        copies=tuple(copies),
    )


def _kind(name: str, category: str) -> SpanKind | None:
    if category in ANNOTATIONS:
        if name == STEP_RANGE:
            return SpanKind.STEP
        if name.startswith(SYNC_MARKER):
            return SpanKind.MARKER
        if name.startswith(LATE_MARKER):
            return SpanKind.LATE_MARKER
        if name.startswith(ALLOW_MARKER):
            return SpanKind.ALLOWANCE
    kind = CATEGORIES.get(category)
    if kind is None and CALLS.fullmatch(category):
        return SpanKind.CALL
    return kind


def _append(spans: list[Span], span: Span | None) -> None:
    if span is not None:
        spans.append(span)


def _span(event: TraceEvent, name: str, kind: SpanKind) -> Span | None:
    start_us = number(event.get("ts"))
    if start_us is None:
        return None
    return Span(
        name,
        (str(event.get("pid")), str(event.get("tid"))),
        start_us,
        start_us + _duration_us(event, kind),
        correlation_of(event) if kind is SpanKind.CALL else None,
    )


def _duration_us(event: TraceEvent, kind: SpanKind) -> float:
    """Never negative. A step without an end lasts: what it holds must not be lost."""
    duration_us = number(event.get("dur"))
    if duration_us is None:
        return inf if kind is SpanKind.STEP else 0.0
    return max(0.0, duration_us)


def number(value: object) -> float | None:
    """Return a finite number as a float; ``None`` for anything else."""
    if isinstance(value, (int, float)) and isfinite(value):
        return float(value)
    return None


def _copies(event: TraceEvent, name: str) -> Iterator[Copy]:
    start_us = number(event.get("ts"))
    if start_us is not None:
        size_bytes = _argument(event, "bytes")
        yield Copy(name, start_us, correlation_of(event), size_bytes)


def correlation_of(event: TraceEvent) -> int | None:
    """Return the number of the call that *event* is, or was started by."""
    return _argument(event, "correlation")


def _argument(event: TraceEvent, name: str) -> int | None:
    arguments = event.get("args")
    if not isinstance(arguments, Mapping):
        return None
    value = arguments.get(name)
    return value if isinstance(value, int) else None


def enclosing(
    points: Sequence[Span], spans: Iterable[Span]
) -> tuple[tuple[Span, ...], ...]:
    """For each point, the spans around its middle on its thread, innermost first.

    One sort and one sweep a thread; *points* may come in any order.
    """
    by_thread = _by_thread(points, spans)
    found: list[tuple[Span, ...]] = [()] * len(points)
    indices: dict[Thread, list[int]] = defaultdict(list)
    for index, point in enumerate(points):
        indices[point.thread].append(index)
    for thread, here in indices.items():
        here.sort(key=lambda index: points[index].middle_us)
        moments = [points[index].middle_us for index in here]
        for index, around in zip(here, _sweep(moments, by_thread[thread]), strict=True):
            found[index] = around
    return tuple(found)


def _by_thread(
    points: Sequence[Span], spans: Iterable[Span]
) -> Mapping[Thread, list[Span]]:
    wanted = {point.thread for point in points}
    by_thread: dict[Thread, list[Span]] = {thread: [] for thread in wanted}
    for span in spans:
        if span.thread in wanted:
            by_thread[span.thread].append(span)
    return by_thread


def _sweep(moments: Sequence[float], spans: list[Span]) -> list[tuple[Span, ...]]:
    spans.sort(key=lambda span: (span.start_us, -span.end_us))
    found: list[tuple[Span, ...]] = []
    is_open: list[Span] = []
    following = 0
    for moment in moments:
        while following < len(spans) and spans[following].start_us <= moment:
            while is_open and is_open[-1].end_us < spans[following].start_us:
                is_open.pop()
            is_open.append(spans[following])
            following += 1
        found.append(tuple(s for s in reversed(is_open) if s.end_us >= moment))
    return found


def innermost(trace: Trace, spans: Sequence[Span]) -> list[Span | None]:
    """Find the innermost operation around each of *spans*."""
    return [ops[0] if ops else None for ops in enclosing(spans, trace.ops)]
