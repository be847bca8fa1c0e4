"""The moments in a trace at which the host waits for the device."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..devices.sync_marker import innermost_in
from ..devices.sync_marker import location_in
from ..model.finding import Location
from .calls import TO_PAGEABLE
from .calls import Transaction
from .calls import transactions
from .trace import Span
from .trace import Trace
from .trace import enclosing


HOST_ONLY: Final = frozenset({"aten::one_hot", "aten::tensor_split"})
"""Operations that check values on the CPU alone, or read indices that must be there."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What made the host wait: the aten operation, the call, the line.

    ``allowed`` is why its author lets it, ``innermost`` the innermost line outside of
    torch where that is another one.
    """

    op: str | None
    api: str | None
    location: Location | None
    allowed: str | None = None
    innermost: Location | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait in the step of this index, at a moment of the trace's clock."""

    step: int
    blocked_us: float
    cause: Cause
    at_us: float = 0.0


def device_waits(trace: Trace) -> Iterator[Wait]:
    """Waits seen in calls; an asynchronous copy and the wait for it are one.

    For pageable memory most of the wait is inside the copy's call and not in the
    synchronisation after it, so the time of both is blocked. A copy to such memory that
    nothing synchronises waits as well.
    """
    copies = {c.correlation: c.name for c in trace.copies if c.correlation}
    for transaction in transactions(trace):
        name = copies.get(transaction.last.span.correlation or 0, "")
        if transaction.wait or TO_PAGEABLE.fullmatch(name):
            yield _wait(transaction)


def _wait(transaction: Transaction) -> Wait:
    last = transaction.last
    return Wait(
        step=last.step,
        blocked_us=transaction.duration_us,
        cause=Cause(
            op=last.op.name if last.op else None,
            api=last.span.name,
            location=transaction.location,
            innermost=transaction.innermost,
        ),
        at_us=last.span.middle_us,
    )


def marked_waits(trace: Trace) -> Iterator[Wait]:
    """A wait a marker; its operation is the first that starts inside."""
    around = enclosing(trace.markers, trace.ops)
    for marker, op, ops in zip(trace.markers, _first_ops(trace), around, strict=True):
        step = trace.step_at(marker.start_us)
        if step is None or any(o.name in HOST_ONLY for o in ops):
            continue
        cause = Cause(
            op=op.name if op else None,
            api=None,
            location=location_in(marker.name),
            innermost=innermost_in(marker.name),
        )
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
