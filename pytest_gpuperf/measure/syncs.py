"""Hidden syncs: how often a step makes the host wait for the device, and where."""

from __future__ import annotations

import linecache
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..devices.allow_sync import allowance_in, innermost_in, location_in
from ..devices.base import STEP_RANGE, TraceEvent
from ..errors import ErrorId, RunError, StepError
from ..model.finding import MOST_WAITS, Finding, FindingKind, Location
from .trace import (
    TO_PAGEABLE,
    Span,
    Trace,
    Transaction,
    enclosing,
    launches_in,
    parse,
    transactions,
)


# The moments in a trace at which the host waits for the device.

HOST_ONLY: Final = frozenset({"aten::one_hot", "aten::tensor_split"})
"""Operations that check values on the CPU alone, or read indices that must be there."""


@dataclass(frozen=True, slots=True)
class MeasuredSync:
    """One sync in the step of this index, at a moment of the trace's clock.

    Its ``cause`` is a finding without numbers.
    """

    step: int
    blocked_us: float
    cause: Finding
    at_us: float = 0.0


def device_syncs(trace: Trace) -> Iterator[MeasuredSync]:
    """Yield the syncs in calls; an asynchronous copy and the sync for it are one.

    For pageable memory most of the sync is inside the copy's call and not in the
    synchronisation after it, so the time of both is blocked. A copy to such memory
    waits even if no synchronisation follows.
    """
    copies = {c.correlation: c.name for c in trace.copies if c.correlation}
    for transaction in transactions(trace):
        name = copies.get(transaction.last.span.correlation or 0, "")
        if transaction.wait or TO_PAGEABLE.fullmatch(name):
            yield _wait(transaction)


def _wait(transaction: Transaction) -> MeasuredSync:
    last = transaction.last
    return MeasuredSync(
        step=last.step,
        blocked_us=transaction.duration_us,
        cause=Finding(
            kind=FindingKind.SYNC,
            op=last.op.name if last.op else None,
            api=last.span.name,
            location=transaction.location,
            innermost=transaction.innermost,
        ),
        at_us=last.span.middle_us,
    )


def marked_syncs(trace: Trace) -> Iterator[MeasuredSync]:
    """Yield a sync per marker; its operation is the first that starts inside."""
    around = enclosing(trace.markers, trace.ops)
    for marker, op, ops in zip(trace.markers, _first_ops(trace), around, strict=True):
        step = trace.step_at(marker.start_us)
        if step is None or any(o.name in HOST_ONLY for o in ops):
            continue
        cause = Finding(
            kind=FindingKind.SYNC,
            op=op.name if op else None,
            location=location_in(marker.name),
            innermost=innermost_in(marker.name),
        )
        yield MeasuredSync(step, 0.0, cause, marker.middle_us)


def _first_ops(trace: Trace) -> list[Span | None]:
    ops = sorted(trace.ops, key=lambda op: (op.thread, op.start_us))
    firsts: list[Span | None] = []
    for marker in trace.markers:
        start = (marker.thread, marker.start_us)
        # The first operation after the marker's start on the same thread: its range is
        # opened before the operation.
        index = bisect_right(ops, start, key=lambda op: (op.thread, op.start_us))
        op = ops[index] if index < len(ops) else None
        firsts.append(op if op is not None and _starts_inside(marker, op) else None)
    return firsts


def _starts_inside(marker: Span, op: Span) -> bool:
    return op.thread == marker.thread and op.start_us <= marker.end_us


# Syncs that their author allows: in a block of ``allow_sync``, or by a comment.

ALLOW_SYNC_COMMENT: Final = re.compile(
    r"#\s*gpuperf:\s*allow-sync\b[\s:]*(?P<reason>.*?)\s*$"
)


def reason_on_line(location: Location | None) -> str | None:
    """Return the reason that a comment at *location* gives for a sync; ``None`` without.

    Raises ``StepError`` if the comment gives no reason.
    """
    if location is None or not location.exact:
        return None
    found = ALLOW_SYNC_COMMENT.search(linecache.getline(location.file, location.line))
    if found is None:
        return None
    if not found["reason"]:
        msg = (
            f"{_shown(location)}: the comment allow-sync gives no reason, "
            "so it allows nothing; write one behind it, such as "
            '"# gpuperf: allow-sync the loss is logged"'
        )
        raise StepError(msg, ErrorId.GP213)
    return found["reason"]


def _shown(location: Location) -> str:
    """Name the line, from the working directory on if it is below that."""
    path, here = Path(location.file), Path.cwd()
    inside = path.is_relative_to(here)
    file = path.relative_to(here).as_posix() if inside else location.file
    return f"{file}:{location.line}"


def with_allowances(
    syncs: Iterable[MeasuredSync], blocks: Sequence[Span]
) -> list[MeasuredSync]:
    """Say of each sync whether it is allowed, in the order of time.

    A sync belongs to the innermost of the *blocks* around it, on whatever thread, that
    still allows one.
    """
    used: Counter[Span] = Counter()
    return [
        _judged(wait, blocks, used) for wait in sorted(syncs, key=lambda w: w.at_us)
    ]


def _judged(
    wait: MeasuredSync, blocks: Sequence[Span], used: Counter[Span]
) -> MeasuredSync:
    reason = reason_on_line(wait.cause.location)
    if reason is None:
        reason = _reason_of_block(wait, blocks, used)
    return replace(wait, cause=wait.cause.allowing(reason))


def _reason_of_block(
    wait: MeasuredSync, blocks: Sequence[Span], used: Counter[Span]
) -> str | None:
    around = [b for b in blocks if b.start_us <= wait.at_us <= b.end_us]
    # The block that began last is the innermost one.
    for block in sorted(around, key=lambda b: -b.start_us):
        allowance = allowance_in(block.name)
        if allowance is not None and allowance.covers(used[block] + 1) > used[block]:
            used[block] += 1
            return allowance.reason
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncs:
    """``per_step`` is the worst step's count; findings are sorted, longest sync first.

    Allowed syncs are found and not counted.
    """

    per_step: int
    findings: tuple[Finding, ...]


def find_syncs(events: Sequence[TraceEvent]) -> Syncs:
    """Count the syncs in the steps of a profiler's trace and name their causes.

    Only what starts inside a ``STEP_RANGE`` counts, on whatever thread: autograd's
    threads sync too. The profiler's own syncs and those between steps are outside. A
    trace with calls into CUDA or HIP shows the syncs themselves. In one without, from a
    CPU, each ``SYNC_MARKER`` range represents a sync that a GPU would have caused;
    nothing waited, so nothing was blocked. A sync in any step counts. Blocked time is
    the mean over the steps.

    Raises ``RunError`` if the trace contains no step, ``StepError`` if a comment allows
    a sync and gives no reason.
    """
    trace = parse(events)
    if not trace.steps:
        msg = (
            f"the profiler's trace of {len(events)} events has no {STEP_RANGE} range, "
            "expected one per step: start and stop no other profiler inside the step"
        )
        raise RunError(msg, ErrorId.GP305)
    syncs = _syncs_in(trace)
    by_cause: dict[Finding, list[MeasuredSync]] = defaultdict(list)
    for wait in syncs:
        by_cause[wait.cause].append(wait)
    findings = [_finding(cause, group, trace) for cause, group in by_cause.items()]
    counted = [wait for wait in syncs if wait.cause.allowed is None]
    return Syncs(
        per_step=_most_in_a_step(counted), findings=tuple(sorted(findings, key=_order))
    )


def _syncs_in(trace: Trace) -> list[MeasuredSync]:
    seen = device_syncs(trace) if trace.calls else marked_syncs(trace)
    return with_allowances(seen, trace.allowances)


def most_syncs(events: Sequence[TraceEvent]) -> int:
    """Count the syncs with a device in the step with most, allowed or not."""
    return _most_in_a_step(device_syncs(parse(events)))


def _finding(cause: Finding, syncs: Sequence[MeasuredSync], trace: Trace) -> Finding:
    blocked_ms = sum(wait.blocked_us for wait in syncs) / len(trace.steps) / 1e3
    most, place = _most_in_a_step(syncs), _place(syncs, trace)
    return replace(cause, per_step=most, blocked_ms=blocked_ms, **place)


def _place(waits: Sequence[MeasuredSync], trace: Trace) -> dict[str, Any]:
    """Return the fields that say where in a step *waits* are, by what that launches."""
    step = waits[0].step
    starts = [call.start_us for call in launches_in(trace)]
    launched = [at for at in starts if trace.step_at(at) == step]
    after = [sum(at < w.at_us for at in launched) for w in waits if w.step == step]
    return {"waits_after": tuple(after[:MOST_WAITS]), "operations": len(launched)}


def _most_in_a_step(syncs: Iterable[MeasuredSync]) -> int:
    return max(Counter(wait.step for wait in syncs).values(), default=0)


def _order(finding: Finding) -> tuple[float, int, str]:
    return -finding.blocked_ms, -finding.per_step, f"{finding.location} {finding.op}"
