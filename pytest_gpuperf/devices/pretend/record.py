"""What one audited step leaves behind: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...model.finding import Phase as Phase  # noqa: PLC0414, to be had from here
from ..sites import Site as Site  # noqa: PLC0414, likewise


class AuditKind(Enum):
    """How sure it is, and by what, that the host waits."""

    SYNC = "sync"
    """A CUDA synchronisation call: certain."""
    COPY = "copy"
    """No such call, but the copy itself returns only when it is done: certain."""
    MAYBE = "maybe"
    """Sizes, a library or the allocator decide: cannot be told without a GPU."""


class Direction(Enum):
    """Which way a copy goes."""

    H2D = "h2d"
    D2H = "d2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """The host would wait ``count`` times at this site, for this reason."""

    kind: AuditKind
    op: str
    reason: str
    site: Site
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCopy:
    """Copies between host and device at one site; ``total_bytes`` over all of them.

    ``pinned`` says what the host's side is; a copy that is ``blocking`` holds the host
    up until it is done.
    """

    op: str
    direction: Direction
    pinned: bool
    blocking: bool
    site: Site
    count: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """Something that only a GPU can judge, and why."""

    op: str
    reason: str
    site: Site
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a step.

    ``syncs`` counts every certain wait, ``device_syncs`` those of them that were asked
    for by name (``torch.cuda.synchronize`` and its kin). ``ops`` counts operations that
    would launch work: views and allocations are none. ``flops`` are those of torch's own
    formulas, see ``flops``.
    """

    syncs: int
    maybe: int
    device_syncs: int
    pageable_copies: int
    blocking_copies: int
    h2d_bytes: int
    d2h_bytes: int
    ops: int
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAudit:
    """Everything seen between ``begin_step`` and ``end_step``.

    ``as_eager`` lists what was judged as eager code although a GPU would run it
    compiled.
    """

    findings: tuple[AuditFinding, ...]
    copies: tuple[AuditCopy, ...]
    totals: Totals
    not_judged: tuple[Unjudged, ...]
    as_eager: tuple[Unjudged, ...]

    @property
    def touched_gpu(self) -> bool:
        """Whether anything at all happened on the device."""
        return bool(self.totals.ops or self.copies or self.findings or self.not_judged)
