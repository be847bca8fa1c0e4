"""Calls in a trace that wait for the device or start a copy, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..devices.sync_marker import innermost_in
from ..devices.sync_marker import location_in
from ..model.finding import Location
from .markers import markers_before
from .markers import markers_behind
from .python_frame import blamed
from .trace import Span
from .trace import Thread
from .trace import Trace
from .trace import enclosing
from .trace import innermost


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
class Call:
    """A call inside a step, with the innermost operation around it.

    ``marker`` is the name of the one that tells its line, ``function`` is what the
    profiler knows.
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
    """An asynchronous copy, a wait, or a copy and the wait for it."""

    copy: Call | None
    wait: Call | None

    @property
    def last(self) -> Call:
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
        """The innermost line outside of torch, where that is another."""
        return innermost_in(self._marker)

    @property
    def _marker(self) -> str:
        markers = [call.marker for call in (self.wait, self.copy) if call]
        return next(filter(location_in, markers), "")


def transactions(trace: Trace) -> Iterator[Transaction]:
    """By thread and time; a copy and the wait right after it in one operation are one."""
    copy: Call | None = None
    for call in calls_in(trace):
        completed = copy if call.is_blocking and _are_together(copy, call) else None
        if copy and not completed:
            yield Transaction(copy, None)
        if call.is_blocking:
            yield Transaction(completed, call)
        copy = None if call.is_blocking else call
    if copy:
        yield Transaction(copy, None)


def _are_together(copy: Call | None, call: Call) -> bool:
    return (
        copy is not None and copy.span.thread == call.span.thread and copy.op is call.op
    )


def calls_in(trace: Trace) -> list[Call]:
    """Blocking calls and asynchronous copies inside the steps, by thread and time."""
    spans = [
        call
        for call in sorted(trace.calls, key=_by_thread_and_time)
        if (BLOCKING.fullmatch(call.name) or ASYNC_COPY.fullmatch(call.name))
        and trace.step_at(call.start_us) is not None
    ]
    ops = innermost(trace, spans)
    early = markers_before(trace, spans, ops)
    late = markers_behind(trace, [s for s in spans if BLOCKING.fullmatch(s.name)])
    return [
        Call(
            trace.step_at(span.start_us) or 0,
            span,
            op,
            early.get(span) or late.get(span, ""),
            function,
        )
        for span, op, function in zip(
            spans, ops, functions_around(trace, spans), strict=True
        )
    ]


def functions_around(trace: Trace, spans: Sequence[Span]) -> list[Location | None]:
    """Find the user's function around each of *spans*: its line is that of its def."""
    return [
        blamed(function.name for function in functions)
        for functions in enclosing(spans, trace.functions)
    ]


def _by_thread_and_time(span: Span) -> tuple[Thread, float]:
    return span.thread, span.start_us
