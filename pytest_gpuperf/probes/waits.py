"""The moments in a trace at which the host waits for the device."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..devices.sync_marker import location_in
from ..model.finding import Location
from .python_frame import blamed
from .trace import Span
from .trace import Trace
from .trace import enclosing


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

HOST_ONLY: Final = frozenset({"aten::one_hot", "aten::tensor_split"})
"""Operations that check values on the CPU alone, or read indices that must be there."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What made the host wait: the aten operation, the call, the line.

    ``allowed`` is why its author lets it.
    """

    op: str | None
    api: str | None
    location: Location | None
    allowed: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait in the step of this index, at a moment of the trace's clock."""

    step: int
    blocked_us: float
    cause: Cause
    at_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call inside a step, with the innermost operation around it."""

    step: int
    span: Span
    op: Span | None
    location: Location | None

    @property
    def duration_us(self) -> float:
        return self.span.end_us - self.span.start_us


def device_waits(trace: Trace) -> Iterator[Wait]:
    """Waits seen in calls; an asynchronous copy and the wait for it are one.

    For pageable memory most of the wait is inside the copy's call and not in the
    synchronisation after it, so the time of both is blocked.
    """
    copy: Call | None = None
    for call in _calls(trace):
        is_blocking = BLOCKING.fullmatch(call.span.name) is not None
        completed = copy if is_blocking and _are_together(copy, call) else None
        if completed is None:
            yield from _wait_inside(copy, trace)
        if is_blocking:
            yield _wait(call, completed)
        copy = None if is_blocking else call
    yield from _wait_inside(copy, trace)


def _calls(trace: Trace) -> list[Call]:
    """Blocking calls and asynchronous copies inside the steps, by thread and time."""
    spans = [
        call
        for call in sorted(trace.calls, key=lambda c: (c.thread, c.start_us))
        if BLOCKING.fullmatch(call.name) or ASYNC_COPY.fullmatch(call.name)
    ]
    spans = [span for span in spans if _step_of(trace, span) is not None]
    return [
        Call(_step_of(trace, span) or 0, span, ops[0] if ops else None, location)
        for span, ops, location in zip(
            spans, enclosing(spans, trace.ops), _locations(trace, spans), strict=True
        )
    ]


def _step_of(trace: Trace, span: Span) -> int | None:
    """Index of the step that *span* starts in, on whatever thread."""
    index = bisect_right(trace.steps, span.start_us, key=lambda s: s.start_us) - 1
    if index < 0 or span.start_us > trace.steps[index].end_us:
        return None
    return index


def _are_together(copy: Call | None, call: Call) -> bool:
    return (
        copy is not None and copy.span.thread == call.span.thread and copy.op is call.op
    )


def _wait_inside(copy: Call | None, trace: Trace) -> Iterator[Wait]:
    """The wait of a copy that nothing synchronises, if its destination is pageable."""
    if copy is None or copy.span.correlation is None:
        return
    if TO_PAGEABLE.fullmatch(trace.copies.get(copy.span.correlation, "")):
        yield _wait(copy, None)


def _wait(call: Call, copy: Call | None) -> Wait:
    return Wait(
        step=call.step,
        blocked_us=call.duration_us + (copy.duration_us if copy else 0.0),
        cause=Cause(
            op=call.op.name if call.op else None,
            api=call.span.name,
            location=call.location,
        ),
        at_us=call.span.middle_us,
    )


def _locations(trace: Trace, spans: Sequence[Span]) -> list[Location | None]:
    """Lines from markers, else functions: the profiler knows no more than their def."""
    return [
        location_in(markers[0].name)
        if markers
        else blamed(function.name for function in functions)
        for markers, functions in zip(
            enclosing(spans, trace.markers),
            enclosing(spans, trace.functions),
            strict=True,
        )
    ]


def marked_waits(trace: Trace) -> Iterator[Wait]:
    """A wait a marker; its operation is the first that starts inside."""
    around = enclosing(trace.markers, trace.ops)
    for marker, op, ops in zip(trace.markers, _first_ops(trace), around, strict=True):
        step = _step_of(trace, marker)
        if step is None or any(o.name in HOST_ONLY for o in ops):
            continue
        cause = Cause(op.name if op else None, None, location_in(marker.name))
        yield Wait(step, 0.0, cause, marker.middle_us)


def _first_ops(trace: Trace) -> list[Span | None]:
    ops = sorted(trace.ops, key=lambda op: (op.thread, op.start_us))
    firsts: list[Span | None] = []
    for marker in trace.markers:
        start = (marker.thread, marker.start_us)
        index = bisect_right(ops, start, key=lambda op: (op.thread, op.start_us))
        op = ops[index] if index < len(ops) else None
        firsts.append(op if op is not None and _holds(marker, op) else None)
    return firsts


def _holds(marker: Span, op: Span) -> bool:
    return op.thread == marker.thread and op.start_us <= marker.end_us
