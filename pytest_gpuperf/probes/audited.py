"""From what audited steps did to findings and to the number of their syncs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from ..devices.pretend.allowed import WaitKey
from ..devices.pretend.device import AuditedStep
from ..devices.pretend.record import AuditKind
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.metric import SYNCS
from .allowed import reason_on_line
from .transfers import counted_in
from .transfers import described
from .where import where_of


KINDS: Final = {
    AuditKind.SYNC: FindingKind.SYNC,
    AuditKind.COPY: FindingKind.COPY,
    AuditKind.MAYBE: FindingKind.MAYBE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """Waits of one step that are one finding."""

    finding: Finding
    count: int


def counted_syncs(step: AuditedStep) -> int:
    """Certain waits of *step* that nobody allowed."""
    return sum(w.count for w in _waits(step) if w.finding.metrics)


def findings_of(steps: Sequence[AuditedStep]) -> tuple[Finding, ...]:
    """Findings of all *steps*, each with its count in the step that has most of it."""
    most: dict[Finding, int] = {}
    for step in steps:
        for waits in _waits(step):
            most[waits.finding] = max(waits.count, most.get(waits.finding, 0))
    waiting = [replace(finding, per_step=most[finding]) for finding in most]
    moving = _largest(copy for step in steps for copy in _transfers(step))
    return tuple(sorted((*waiting, *moving), key=_order))


def _waits(step: AuditedStep) -> Iterator[_Waits]:
    """Each wait as a finding without a count, allowed ones apart from the others."""
    allowed = _by_key(step.allowed)
    counts: Counter[Finding] = Counter()
    for found in step.audit.findings:
        finding = Finding(
            kind=KINDS[found.kind],
            op=found.op,
            api=None,
            per_step=0,
            blocked_ms=0.0,
            reason=found.reason,
            **where_of(found.site),
        )
        left = found.count
        if found.kind is AuditKind.MAYBE:
            counts[replace(finding, metrics=())] += left
            continue
        for reason, count in allowed.get(WaitKey.of(found), {}).items():
            taken = min(left, count)
            counts[_allowing(finding, reason)] += taken
            allowed[WaitKey.of(found)][reason] -= taken
            left -= taken
        comment = reason_on_line(found.site.location or found.site.innermost)
        counts[_allowing(finding, comment)] += left
    for finding, count in counts.items():
        if count:
            yield _Waits(finding=finding, count=count)


def _allowing(finding: Finding, reason: str | None) -> Finding:
    metrics = (SYNCS.name,) if reason is None else ()
    return replace(finding, metrics=metrics, allowed=reason)


def _by_key(
    allowed: Mapping[tuple[WaitKey, str], int],
) -> dict[WaitKey, dict[str, int]]:
    by_key: dict[WaitKey, dict[str, int]] = {}
    for (key, reason), count in allowed.items():
        by_key.setdefault(key, {})[reason] = count
    return by_key


def _transfers(step: AuditedStep) -> Iterator[Finding]:
    for copy in step.audit.copies:
        yield Finding(
            kind=FindingKind.TRANSFER,
            op=copy.op,
            api=None,
            per_step=copy.count,
            blocked_ms=0.0,
            metrics=counted_in(
                copy.direction, pinned=copy.pinned, blocking=copy.blocking
            ),
            reason=described(copy.direction, pinned=copy.pinned),
            moved_bytes=copy.total_bytes,
            **where_of(copy.site),
        )


def _largest(transfers: Iterable[Finding]) -> Iterator[Finding]:
    """Of the same copies in several steps, those that carry most."""
    most: dict[Finding, Finding] = {}
    for finding in transfers:
        what = replace(finding, per_step=0, moved_bytes=0)
        known = most.setdefault(what, finding)
        most[what] = replace(
            finding,
            per_step=max(finding.per_step, known.per_step),
            moved_bytes=max(finding.moved_bytes, known.moved_bytes),
        )
    yield from most.values()


def _order(finding: Finding) -> tuple[int, int, int, str]:
    order = list(FindingKind)
    return (
        order.index(finding.kind),
        -finding.per_step,
        -finding.moved_bytes,
        f"{finding.location} {finding.op}",
    )
