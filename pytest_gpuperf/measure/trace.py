"""A profiler's Chrome trace as typed values.

Category and call names changed between 2021 and today (``Operator`` and ``cpu_op``,
``Runtime`` and ``cuda_runtime``, hip names on ROCm): all of them are read. Events that
are broken or say nothing about the host are left out.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from math import inf, isfinite
from typing import Final

from ..devices.allow_sync import innermost_in, location_in
from ..devices.base import (
    ALLOW_MARKER,
    BACKWARD_MARKER,
    LATE_MARKER,
    STEP_RANGE,
    SYNC_MARKER,
    TraceEvent,
)
from ..model.finding import Location


# Python functions as the profiler names them: ``path(line of the def): function``.

FRAME_NAME: Final = re.compile(r"(?P<file>[^<].*)\((?P<line>\d+)\): (?P<function>.+)")

LIBRARY_FILE: Final = re.compile(r"(?:^|.*[/\\])(?:torch|pytest_gpuperf)[/\\].*")
"""Files of torch and of this package, whether or not ``sys.path`` was cut off."""

STDLIB_FILE: Final = re.compile(
    r".*[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages).*"
)


def blamed(names: Iterable[str]) -> Location | None:
    """The function of the user among *names*, innermost first.

    Built-in functions, modules, torch, this package and the standard library are
    passed over.
    """
    for name in names:
        found = FRAME_NAME.fullmatch(name)
        if found is not None and is_blamable(found["file"]):
            return Location(
                file=found["file"],
                line=int(found["line"]),
                function=found["function"],
                exact=False,
            )
    return None


def is_blamable(file: str) -> bool:
    """Whether *file* is neither torch, nor this package, nor the standard library."""
    if LIBRARY_FILE.fullmatch(file) or STDLIB_FILE.fullmatch(file):
        return False
    # A ``sys.path`` that was cut off leaves ``json/decoder.py``: the first part is then
    # a module's name.
    top = re.split(r"[/\\]", file)[0].removesuffix(".py")
    return top not in sys.stdlib_module_names


Thread = tuple[object, object]
"""Process and thread identifier of an event."""


class SpanKind(Enum):
    """What a span of host time is."""

    STEP = "step"
    MARKER = "marker"
    LATE_MARKER = "late marker"
    BACKWARD_MARKER = "backward marker"
    ALLOWANCE = "allowance"
    OP = "op"
    CALL = "call"
    FUNCTION = "function"


SPAN_CATEGORIES: Final[Mapping[str, SpanKind]] = {
    "cpu_op": SpanKind.OP,
    "operator": SpanKind.OP,
    "python_function": SpanKind.FUNCTION,
}

PREFIXES: Final[Mapping[str, SpanKind]] = {
    SYNC_MARKER: SpanKind.MARKER,
    LATE_MARKER: SpanKind.LATE_MARKER,
    BACKWARD_MARKER: SpanKind.BACKWARD_MARKER,
    ALLOW_MARKER: SpanKind.ALLOWANCE,
}

CALLS: Final = re.compile(r"(?:[a-z0-9]+_)?(?:runtime|driver)")
"""Categories of calls into CUDA, HIP and their likes."""

ANNOTATIONS: Final = frozenset({"user_annotation", "cpu_op", "operator"})
"""Categories of ``record_function`` ranges; their copies on the GPU have others."""

COPY_CATEGORIES: Final = frozenset({"gpu_memcpy", "memcpy"})


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

    ``steps`` are in order of time, all else as in the file. ``calls`` are those into
    the GPU's runtime and driver, ``functions`` are Python's, ``allowances`` are
    ``allow_sync``'s.
    """

    steps: tuple[Span, ...] = ()
    markers: tuple[Span, ...] = ()
    late_markers: tuple[Span, ...] = ()
    backward_markers: tuple[Span, ...] = ()
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


_newest: Final[list[tuple[Sequence[TraceEvent], Trace]]] = []
"""The trace that was read last: each of its numbers asks for it, up to nine times."""


def parse(events: Sequence[TraceEvent]) -> Trace:
    """Read trace events of any age; nothing raises for a broken one.

    *events* are not changed afterwards: the same ones are read once.
    """
    for known, trace in _newest:
        if known is events:
            return trace
    trace = _read(events)
    _newest[:] = [(events, trace)]
    return trace


def _read(events: Iterable[TraceEvent]) -> Trace:
    spans: dict[SpanKind, list[Span]] = defaultdict(list)
    copies: list[Copy] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        name, category = str(event.get("name")), str(event.get("cat")).lower()
        kind = _kind(name, category)
        if kind is not None:
            _append(spans[kind], _span(event, name, kind))
        elif category in COPY_CATEGORIES:
            copies.extend(_copies(event, name))
    return Trace(
        steps=tuple(sorted(spans[SpanKind.STEP], key=lambda s: s.start_us)),
        markers=tuple(spans[SpanKind.MARKER]),
        late_markers=tuple(spans[SpanKind.LATE_MARKER]),
        backward_markers=tuple(spans[SpanKind.BACKWARD_MARKER]),
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
        prefix, bar, _ = name.partition("|")
        if prefix + bar in PREFIXES:
            return PREFIXES[prefix + bar]
    kind = SPAN_CATEGORIES.get(category)
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
    """Return it, never negative; a step without an end lasts for ever."""
    # A trace that was cut off lacks the end of its last step: its syncs must not be
    # lost.
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

    One sort and one sweep per thread; *points* may come in any order.
    """
    by_thread = _by_thread(points, spans)
    found: list[tuple[Span, ...]] = [()] * len(points)
    indices: dict[Thread, list[int]] = defaultdict(list)
    for index, point in enumerate(points):
        indices[point.thread].append(index)
    for thread, here in indices.items():
        here.sort(key=lambda index: points[index].middle_us)
        # The middle, as the ends of nested spans may be equal after rounding.
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
    # Of spans with the same start the longer one is around the other.
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


# Launches of work, by the calls that make them.

LAUNCH: Final = re.compile(r"(?:cuda|cu|hip)(?!\w*HostFunc)\w*Launch\w*")
"""Calls that launch a kernel or a graph; a function of the host is no kernel."""


def launches_in(trace: Trace) -> Iterator[Span]:
    """Yield outer calls only: a call of the runtime makes one of the driver inside."""
    calls = [call for call in trace.calls if LAUNCH.fullmatch(call.name)]
    for call, around in zip(calls, enclosing(calls, calls), strict=True):
        if not any(_encloses(other, call) for other in around):
            yield call


def _encloses(outer: Span, inner: Span) -> bool:
    """Whether *outer*, which is around the middle of *inner*, is the longer one."""
    # ``enclosing`` also returns the call itself, which is not longer than itself.
    return outer.end_us - outer.start_us > inner.end_us - inner.start_us


# The calls in a trace that a marker refers to.


def markers_around(trace: Trace, syncs: Sequence[Span]) -> dict[Span, str]:
    """Name the innermost marker around each of *syncs* that has one."""
    around = zip(syncs, enclosing(syncs, trace.markers), strict=True)
    return {wait: markers[0].name for wait, markers in around if markers}


def markers_behind(trace: Trace, syncs: Sequence[Span]) -> dict[Span, str]:
    """Name the late marker of each of *syncs* that has one.

    Late markers come after an operation has returned to Python, one for each sync that
    torch warned of. So each belongs to the last sync before it on its thread that has
    none yet. A sync that torch did not warn of stays without one: the first sync after
    the markers discards it.
    """
    marks = set(trace.late_markers)
    found: dict[Span, str] = {}
    for events in _spans_by_thread(trace, (*trace.late_markers, *syncs)):
        open_syncs: list[Span] = []
        were_marked = False
        for event in events:
            if event in marks:
                if open_syncs:
                    found[open_syncs.pop()] = event.name
            else:
                open_syncs = [event] if were_marked else [*open_syncs, event]
            were_marked = event in marks
    return found


NODE: Final = "autograd::engine::evaluate_function"
"""How the names of the ranges begin in which autograd runs a node, on any thread."""


def markers_after_backward(trace: Trace, syncs: Sequence[Span]) -> dict[Span, str]:
    """Name the marker of the backward pass of each of *syncs* that is in one.

    Torch keeps what the nodes of autograd warn of until their backward pass has ended.
    So a sync in a node has the first such marker that follows in its step.
    """
    in_nodes = (
        (wait, trace.step_at(wait.start_us))
        for wait, ops in zip(syncs, enclosing(syncs, trace.ops), strict=True)
        if any(op.name.startswith(NODE) for op in ops)
    )
    marks = sorted(trace.backward_markers, key=lambda mark: mark.start_us)
    following = (
        (wait, step, bisect_right(marks, wait.end_us, key=lambda mark: mark.start_us))
        for wait, step in in_nodes
    )
    return {
        wait: marks[index].name
        for wait, step, index in following
        if index < len(marks) and trace.step_at(marks[index].start_us) == step
    }


def _spans_by_thread(trace: Trace, spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Groups of *spans* of one thread in one step, each in the order of time."""
    placed = [(str(s.thread), trace.step_at(s.start_us), s) for s in spans]
    inside = [(thread, step, span) for thread, step, span in placed if step is not None]
    inside.sort(key=lambda place: (place[0], place[1], place[2].middle_us))
    for _, group in groupby(inside, key=lambda place: place[:2]):
        yield [span for _, _, span in group]


# Calls in a trace that wait for the device or start a copy, each with its line.

BLOCKING: Final = re.compile(
    r"""
    (?: (?:cuda|hip|cu)(?:Stream|Device|Event|Ctx)Synchronize
      | (?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|ToArray|FromArray)?
      | cuMemcpy(?:DtoH|HtoD|2D|3D)?(?:_v2)?
      | hipMemcpy(?:WithStream|DtoH|HtoD)
    ) (?:_ptds|_ptsz|_spt)?
    """,
    re.VERBOSE,
)
"""Calls that return when the device is done; hipMemcpyWithStream is copy and wait in
one. The suffixes are those of per-thread default streams."""

ASYNC_COPY: Final = re.compile(r"(?:cuda|hip|cu)Memcpy\w*Async\w*")

TO_PAGEABLE: Final = re.compile(r".*DtoH .*-> Pageable.*")
"""A copy to pageable memory returns once it is complete, whatever its call is named
(CUDA Runtime API, "API synchronization behavior")."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call inside a step, with the innermost operation around it.

    ``marker`` is the name of the marker with its line, ``function`` is the function
    that the profiler recorded.
    """

    step: int
    span: Span
    op: Span | None
    marker: str
    function: Location | None

    @property
    def is_blocking(self) -> bool:
        """Whether the call returns when the device is done, by its name."""
        return BLOCKING.fullmatch(self.span.name) is not None


@dataclass(frozen=True, slots=True)
class Transaction:
    """An asynchronous copy, a sync, or a copy and the sync for it."""

    copy: TracedCall | None
    wait: TracedCall | None

    @property
    def last(self) -> TracedCall:
        """The call that ends it."""
        found = self.wait or self.copy
        assert found is not None  # noqa: S101 - one of them is there
        return found

    @property
    def duration_us(self) -> float:
        calls = [call.span for call in (self.copy, self.wait) if call]
        return sum(span.end_us - span.start_us for span in calls)

    @property
    def location(self) -> Location | None:
        """The exact line, if either call has one; else the function."""
        return location_in(self._marker) or self.last.function

    @property
    def innermost(self) -> Location | None:
        """The innermost line outside of torch, if that is another."""
        return innermost_in(self._marker)

    @property
    def _marker(self) -> str:
        markers = [call.marker for call in (self.wait, self.copy) if call]
        return next(filter(location_in, markers), "")


def transactions(trace: Trace) -> Iterator[Transaction]:
    """Yield by thread and time; a copy and the sync right after it are one."""
    copy: TracedCall | None = None
    for call in calls_in(trace):
        completed = copy if call.is_blocking and _are_together(copy, call) else None
        if copy and not completed:
            yield Transaction(copy, None)
        if call.is_blocking:
            yield Transaction(completed, call)
        copy = None if call.is_blocking else call
    if copy:
        yield Transaction(copy, None)


def _are_together(copy: TracedCall | None, call: TracedCall) -> bool:
    return (
        copy is not None and copy.span.thread == call.span.thread and copy.op is call.op
    )


def calls_in(trace: Trace) -> list[TracedCall]:
    """Blocking calls and asynchronous copies inside the steps, by thread and time."""
    spans = [
        call
        for call in sorted(trace.calls, key=_by_thread_and_time)
        if (BLOCKING.fullmatch(call.name) or ASYNC_COPY.fullmatch(call.name))
        and trace.step_at(call.start_us) is not None
    ]
    ops, functions = innermost(trace, spans), functions_around(trace, spans)
    markers = markers_of(trace, spans)
    return [
        TracedCall(
            trace.step_at(span.start_us) or 0,
            span,
            op,
            markers.get(span, ""),
            function,
        )
        for span, op, function in zip(spans, ops, functions, strict=True)
    ]


def markers_of(trace: Trace, spans: Sequence[Span]) -> Mapping[Span, str]:
    """Name the marker of each of *spans* that has one: the surest one of several."""
    syncs = [span for span in spans if BLOCKING.fullmatch(span.name)]
    around = markers_around(trace, spans)
    late = markers_behind(trace, [wait for wait in syncs if wait not in around])
    return {**markers_after_backward(trace, syncs), **late, **around}


def functions_around(trace: Trace, spans: Sequence[Span]) -> list[Location | None]:
    """Find the user's function around each of *spans*: its line is that of its def."""
    return [
        blamed(function.name for function in functions)
        for functions in enclosing(spans, trace.functions)
    ]


def _by_thread_and_time(span: Span) -> tuple[Thread, float]:
    return span.thread, span.start_us
