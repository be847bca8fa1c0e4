"""Hidden syncs and copies of a trace: how often a step waits for the device, and where."""

from __future__ import annotations

import linecache
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..devices.allow_sync import allowance_in, innermost_in, location_in
from ..devices.audit_record import BYTES_METRICS, CopyDirection, copy_fields
from ..devices.base import STEP_RANGE, TraceEvent
from ..errors import ErrorId, RunError, StepError
from ..files import shown_path
from ..model.finding import MOST_WAITS, Finding, FindingKind, Location
from ..model.metrics import D2H_BYTES, PAGEABLE_COPIES
from .plan import Found
from .trace import (
    TO_PAGEABLE,
    Copy,
    Span,
    Trace,
    Transaction,
    enclosing,
    functions_around,
    innermost,
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
            f"{shown_path(Path(location.file), Path.cwd())}:{location.line}: the comment "
            "allow-sync gives no reason, "
            "so it allows nothing; write one behind it, such as "
            '"# gpuperf: allow-sync the loss is logged"'
        )
        raise StepError(msg, ErrorId.GP213)
    return found["reason"]


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


# Copies between host and device, and the bytes that they carry.

COPY_NAME: Final = re.compile(
    r"Memcpy (?P<direction>HtoD|DtoH)\b(?: \((?P<source>.+) -> (?P<target>.+)\))?.*"
)
"""As Kineto names copies; ``Memcpy HtoD (Host -> Device)`` on ROCm."""

DIRECTIONS: Final = {"HtoD": CopyDirection.H2D, "DtoH": CopyDirection.D2H}

IS_PINNED: Final = {"Pageable": False, "Pinned": True, "Managed": True}
"""Whether the host's side is page-locked; of others it is unknown."""

COPY: Final = "aten::copy_"
"""The innermost operation of every copy of a tensor."""

GPU: Final = ("", "")
"""The thread of a copy without a known thread on the host."""

UNKNOWN_MEMORY: Final = (
    "the profiler does not tell pinned from pageable memory (it is so on ROCm)"
)
WITHIN_GPU: Final = "Memcpy DtoD"

UNKNOWN_DIRECTION: Final = (
    "the profiler names copies to pinned memory like copies inside the GPU, and the "
    "step has both (it is so on ROCm)"
)

UNKNOWN_COPY_SIZE: Final = "the profiler does not tell how many bytes a copy carries"


class Transfer(NamedTuple):
    """One copy of a tensor; its cause has no numbers, and unknown parts are ``None``.

    ``pinned`` is the memory of the host's side.
    """

    step: int
    cause: Finding
    size_bytes: int | None
    pinned: bool | None


def find_traffic(events: Sequence[TraceEvent]) -> Found:
    """Count the copies that the steps of a profiler's trace start.

    Only copies of tensors count, not what an operation reads back for itself, as
    ``item`` and ``nonzero`` do. A copy that starts inside a step counts, even if the
    GPU makes it after the step.
    """
    trace = parse(events)
    transfers = list(transfers_of(trace))
    counts = {
        **_bytes(transfers),
        PAGEABLE_COPIES.name: _most(
            step
            for step, cause, _, _ in transfers
            if PAGEABLE_COPIES.name in cause.metrics
        ),
    }
    unmeasured = {**dict(_unreported(transfers)), **dict(_misnamed(trace))}
    return Found(
        exact={name: most for name, most in counts.items() if name not in unmeasured},
        unmeasured=unmeasured,
        findings=tuple(sorted(_findings(transfers), key=_by_bytes)),
    )


def transfers_of(trace: Trace) -> Iterator[Transfer]:
    copies = [copy for copy in trace.copies if COPY_NAME.fullmatch(copy.name)]
    by_correlation = {c.correlation: c for c in trace.calls if c.correlation}
    starts = [
        by_correlation.get(copy.correlation or 0) or _gone(copy) for copy in copies
    ]
    known = _transactions_by_correlation(trace)
    ops, functions = innermost(trace, starts), functions_around(trace, starts)
    for copy, start, op, function in zip(copies, starts, ops, functions, strict=True):
        step = _step_of(trace, start)
        if step is None or not _is_a_tensor_s(op):
            continue
        transaction = known.get(start.correlation or 0)
        direction, pinned = _as_named(copy)
        cause = Finding(
            **copy_fields(direction, pinned=pinned),
            op=op.name if op else None,
            api=start.name or None,
            location=transaction.location if transaction else function,
            innermost=transaction.innermost if transaction else None,
        )
        yield Transfer(step, cause, copy.size_bytes, pinned)


def _gone(copy: Copy) -> Span:
    """Return a span in place of a call that the profiler did not record."""
    return Span("", GPU, copy.start_us, copy.start_us)


def _step_of(trace: Trace, start: Span) -> int | None:
    """Index of the step; for a copy without its call, the last step that had begun."""
    if start.thread != GPU:
        return trace.step_at(start.start_us)
    # The GPU may copy after its step has ended on the host, but never before it has
    # begun.
    begun = sum(step.start_us <= start.start_us for step in trace.steps)
    return begun - 1 if begun else None


def _transactions_by_correlation(trace: Trace) -> Mapping[int, Transaction]:
    return {
        call.span.correlation: transaction
        for transaction in transactions(trace)
        for call in (transaction.copy, transaction.wait)
        if call and call.span.correlation
    }


def _as_named(copy: Copy) -> tuple[CopyDirection, bool | None]:
    named = COPY_NAME.fullmatch(copy.name)
    assert named is not None  # noqa: S101 - chosen by it
    host = named["source" if named["direction"] == "HtoD" else "target"]
    return DIRECTIONS[named["direction"]], IS_PINNED.get(host)


def _is_a_tensor_s(op: Span | None) -> bool:
    """Whether *op* copies a tensor, and not a result that it reads for itself."""
    return op is None or op.name == COPY or not op.name.startswith("aten::")


def _most(steps: Iterable[int]) -> int:
    return max(Counter(steps).values(), default=0)


def _bytes(transfers: Iterable[Transfer]) -> dict[str, int]:
    """Bytes by metric, of the step with most of them."""
    carried: Counter[tuple[str, int]] = Counter()
    for step, cause, size_bytes, _ in transfers:
        carried[cause.metrics[0], step] += size_bytes or 0
    return {
        name: max((n for key, n in carried.items() if key[0] == name), default=0)
        for name in BYTES_METRICS.values()
    }


def _unreported(transfers: Iterable[Transfer]) -> Iterator[tuple[str, str]]:
    for _, cause, size_bytes, pinned in transfers:
        if pinned is None:
            yield PAGEABLE_COPIES.name, UNKNOWN_MEMORY
        if size_bytes is None:
            yield cause.metrics[0], UNKNOWN_COPY_SIZE


def _misnamed(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield what copies to pinned memory may be missing from, as ROCm names them."""
    starts = {c.correlation: c for c in trace.calls if c.name.startswith("hip")}
    for copy in trace.copies:
        call = starts.get(copy.correlation) if copy.correlation else None
        if call is None or not copy.name.startswith(WITHIN_GPU):
            continue
        if trace.step_at(call.start_us) is not None:
            yield D2H_BYTES.name, UNKNOWN_DIRECTION


def _findings(transfers: Iterable[Transfer]) -> Iterator[Finding]:
    counts: dict[Finding, Counter[int]] = defaultdict(Counter)
    carried: dict[Finding, Counter[int]] = defaultdict(Counter)
    for step, cause, size_bytes, _ in transfers:
        counts[cause][step] += 1
        carried[cause][step] += size_bytes or 0
    for cause, by_step in counts.items():
        yield replace(
            cause,
            per_step=max(by_step.values()),
            moved_bytes=max(carried[cause].values()),
        )


def _by_bytes(finding: Finding) -> tuple[int, int, str]:
    return -finding.moved_bytes, -finding.per_step, f"{finding.location} {finding.op}"
