"""What the steps of a trace copy between host and device, and the waits they ask for."""

from __future__ import annotations

import re
from collections import Counter
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final

from ..devices.pretend.record import Direction
from ..devices.protocol import TraceEvent
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Location
from ..model.metric import BLOCKING_COPIES
from ..model.metric import DEVICE_SYNCS
from ..model.metric import PAGEABLE_COPIES
from .calls import TO_PAGEABLE
from .calls import Transaction
from .calls import functions_around
from .calls import transactions
from .trace import Copy
from .trace import Span
from .trace import Trace
from .trace import innermost
from .trace import parse
from .transfers import BYTES
from .transfers import counted_in
from .transfers import described


NAME: Final = re.compile(
    r"Memcpy (?P<direction>HtoD|DtoH)\b(?: \((?P<source>.+) -> (?P<target>.+)\))?.*"
)
"""As Kineto names copies; ``Memcpy HtoD (Host -> Device)`` on ROCm."""

DIRECTIONS: Final = {"HtoD": Direction.H2D, "DtoH": Direction.D2H}

PINNED: Final = {"Pageable": False, "Pinned": True, "Managed": True}
"""Whether the host's side is page-locked; what is not here is not known."""

ASKED: Final = re.compile(r"(?:cuda|hip|cu)\w+Synchronize\w*")

COPY: Final = "aten::copy_"
"""The innermost operation of all of torch's that copy a tensor."""

GPU: Final = ("", "")
"""The thread of what no thread of the host is known for."""

UNTOLD_MEMORY: Final = (
    "the profiler does not tell pinned from pageable memory (it is so on ROCm)"
)
UNTOLD_SIZE: Final = "the profiler does not tell how many bytes a copy carries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Counts and bytes of the step with most of each, by metric name.

    ``unmeasured`` says of the others why the trace has no number.
    """

    exact: Mapping[str, int]
    unmeasured: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """What copies have in common that are one finding."""

    direction: Direction
    pinned: bool | None
    blocking: bool
    op: str | None
    api: str | None
    location: Location | None
    innermost: Location | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy of a tensor in a step."""

    step: int
    kind: Kind
    size_bytes: int | None


def find_traffic(events: Sequence[TraceEvent]) -> Traffic:
    """Count the copies that the steps of a profiler's trace start.

    A copy is its tensor's: what an operation reads back for itself, as ``item`` and
    ``nonzero`` do, is none. What starts inside a step counts, whenever the GPU gets to
    it.
    """
    trace = parse(events)
    transfers = list(_transfers(trace))
    steps = [(t.step, t.kind) for t in transfers]
    counts = {
        **_bytes(transfers),
        PAGEABLE_COPIES.name: _most(n for n, kind in steps if kind.pinned is False),
        BLOCKING_COPIES.name: _most(n for n, kind in steps if kind.blocking),
        DEVICE_SYNCS.name: _most(_asked_waits(trace)),
    }
    unmeasured = dict(_untold(transfers))
    return Traffic(
        exact={name: most for name, most in counts.items() if name not in unmeasured},
        unmeasured=unmeasured,
        findings=tuple(sorted(_findings(transfers), key=_order)),
    )


def _transfers(trace: Trace) -> Iterator[Transfer]:
    copies = [copy for copy in trace.copies if NAME.fullmatch(copy.name)]
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
        kind = Kind(
            **_as_named(copy),
            blocking=_is_waited_for(copy, transaction),
            op=op.name if op else None,
            api=start.name or None,
            location=transaction.location if transaction else function,
            innermost=transaction.innermost if transaction else None,
        )
        yield Transfer(step, kind, copy.size_bytes)


def _gone(copy: Copy) -> Span:
    """Stand for a call that the profiler did not record, as those of the driver."""
    return Span("", GPU, copy.start_us, copy.start_us)


def _step_of(trace: Trace, start: Span) -> int | None:
    """Index of the step; of a copy whose call is gone, the last that had begun."""
    if start.thread != GPU:
        return trace.step_at(start.start_us)
    begun = sum(step.start_us <= start.start_us for step in trace.steps)
    return begun - 1 if begun else None


def _transactions_by_correlation(trace: Trace) -> Mapping[int, Transaction]:
    return {
        call.span.correlation: transaction
        for transaction in transactions(trace)
        for call in (transaction.copy, transaction.wait)
        if call and call.span.correlation
    }


def _as_named(copy: Copy) -> dict[str, Any]:
    named = NAME.fullmatch(copy.name)
    assert named is not None  # noqa: S101 - chosen by it
    host = named["source" if named["direction"] == "HtoD" else "target"]
    return {"direction": DIRECTIONS[named["direction"]], "pinned": PINNED.get(host)}


def _is_waited_for(copy: Copy, transaction: Transaction | None) -> bool:
    if TO_PAGEABLE.fullmatch(copy.name):
        return True
    return transaction is not None and transaction.wait is not None


def _is_a_tensor_s(op: Span | None) -> bool:
    """Whether what *op* copies is a tensor, and no result that it reads for itself."""
    return op is None or op.name == COPY or not op.name.startswith("aten::")


def _asked_waits(trace: Trace) -> Iterator[int]:
    """The step of each wait that no operation makes."""
    for transaction in transactions(trace):
        wait = transaction.wait
        if wait and wait.op is None and ASKED.fullmatch(wait.span.name):
            yield wait.step


def _most(steps: Iterable[int]) -> int:
    return max(Counter(steps).values(), default=0)


def _bytes(transfers: Iterable[Transfer]) -> dict[str, int]:
    """Bytes by metric, of the step with most of them."""
    carried: Counter[tuple[str, int]] = Counter()
    for transfer in transfers:
        name = BYTES[transfer.kind.direction]
        carried[name, transfer.step] += transfer.size_bytes or 0
    return {
        name: max((n for key, n in carried.items() if key[0] == name), default=0)
        for name in BYTES.values()
    }


def _untold(transfers: Iterable[Transfer]) -> Iterator[tuple[str, str]]:
    for transfer in transfers:
        if transfer.kind.pinned is None:
            yield PAGEABLE_COPIES.name, UNTOLD_MEMORY
        if transfer.size_bytes is None:
            yield BYTES[transfer.kind.direction], UNTOLD_SIZE


def _findings(transfers: Iterable[Transfer]) -> Iterator[Finding]:
    counts: dict[Kind, Counter[int]] = defaultdict(Counter)
    carried: dict[Kind, Counter[int]] = defaultdict(Counter)
    for transfer in transfers:
        counts[transfer.kind][transfer.step] += 1
        carried[transfer.kind][transfer.step] += transfer.size_bytes or 0
    for kind, by_step in counts.items():
        yield Finding(
            kind=FindingKind.TRANSFER,
            op=kind.op,
            api=kind.api,
            per_step=max(by_step.values()),
            blocked_ms=0.0,
            location=kind.location,
            innermost=kind.innermost,
            metrics=counted_in(
                kind.direction, pinned=kind.pinned, blocking=kind.blocking
            ),
            reason=described(kind.direction, pinned=kind.pinned),
            moved_bytes=max(carried[kind].values()),
        )


def _order(finding: Finding) -> tuple[int, int, str]:
    return -finding.moved_bytes, -finding.per_step, f"{finding.location} {finding.op}"
