"""Copies between host and device in the steps of a trace, and the syncs they cause."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..devices.audit_record import BYTES_METRICS, CopyDirection, copy_fields
from ..devices.base import TraceEvent
from ..model.finding import Finding
from ..model.metrics import D2H_BYTES, PAGEABLE_COPIES
from .plan import Found
from .trace import (
    Copy,
    Span,
    Trace,
    Transaction,
    functions_around,
    innermost,
    parse,
    transactions,
)


COPY_NAME: Final = re.compile(
    r"Memcpy (?P<direction>HtoD|DtoH)\b(?: \((?P<source>.+) -> (?P<target>.+)\))?.*"
)
"""As Kineto names copies; ``Memcpy HtoD (Host -> Device)`` on ROCm."""

DIRECTIONS: Final = {"HtoD": CopyDirection.H2D, "DtoH": CopyDirection.D2H}

IS_PINNED: Final = {"Pageable": False, "Pinned": True, "Managed": True}
"""Whether the host's side is page-locked; what is not here is not known."""

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
        findings=tuple(sorted(_findings(transfers), key=_order)),
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


def _order(finding: Finding) -> tuple[int, int, str]:
    return -finding.moved_bytes, -finding.per_step, f"{finding.location} {finding.op}"
