"""Waits inside blocks of ``allow_sync``, told apart by a recorder a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...model.finding import Location
from ...model.finding import Phase
from ..allowances import Allowance
from . import pretend_gpu
from .record import AuditFinding
from .record import AuditKind
from .record import StepAudit


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitKey:
    """What two recorders know of a wait alike: which forward line it belongs to, not."""

    kind: AuditKind
    op: str
    reason: str
    location: Location | None
    innermost: Location | None
    phase: Phase

    @classmethod
    def of(cls, finding: AuditFinding) -> WaitKey:
        return cls(
            kind=finding.kind,
            op=finding.op,
            reason=finding.reason,
            location=finding.site.location,
            innermost=finding.site.innermost,
            phase=finding.site.phase,
        )


class AllowedWaits:
    """Certain waits that blocks allowed, each with the block's reason."""

    def __init__(self, root: str) -> None:
        self.taken: Counter[tuple[WaitKey, str]] = Counter()
        self._root = root
        self._taken_inside: Counter[WaitKey] = Counter()

    @contextmanager
    def block(self, allowance: Allowance) -> Iterator[None]:
        """Allow waits while the context lasts; those of blocks inside are theirs."""
        outer, self._taken_inside = self._taken_inside, Counter()
        with pretend_gpu(self._root) as gpu:
            try:
                yield
            finally:
                self._take(allowance, gpu.end_step())
                outer.update(self._taken_inside)
                self._taken_inside = outer

    def _take(self, allowance: Allowance, audit: StepAudit) -> None:
        left = allowance.covers(audit.totals.syncs)
        for finding in audit.findings:
            if finding.kind is not AuditKind.MAYBE:
                key = WaitKey.of(finding)
                taken = min(left, finding.count - self._taken_inside[key])
                self.taken[key, allowance.reason] += taken
                self._taken_inside[key] += taken
                left -= taken
