"""The record of one audited step, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..model.finding import Location
from ..model.finding import Phase
from .memory_picture import Garbage
from .source_lines import Site


class AuditKind(Enum):
    """How sure it is, and by what, that the host waits."""

    SYNC = "sync"
    """A CUDA synchronisation call: certain."""
    COPY = "copy"
    """No such call, but the copy itself returns only when it is done: certain."""
    MAYBE = "maybe"
    """Sizes, a library or the allocator decide: unknown without a GPU."""


class StepMark(Enum):
    """What ends a step of a program with its own loop."""

    OPTIMIZER = "optimizer"
    """The ``step()`` of an optimizer."""
    BACKWARD = "backward"
    """A backward, where no optimizer steps."""
    REPLAY = "replay"
    """The replay of a captured graph that has the optimizer's ``step()`` in it, or, where
    nothing trains, anything."""
    LOADER = "loader"
    """The next batch of a ``DataLoader``, where there is neither."""
    LOOP = "loop"
    """A loop of the project that does something on the GPU, where there is none of these."""

    @property
    def sentence(self) -> str:
        """Say what a step is, if the optimizer's ``step()`` ends none."""
        if self is StepMark.OPTIMIZER:
            return ""
        if self is StepMark.REPLAY:
            return "a step is a replay of a captured graph"
        return f"no optimizer steps: a step is {STEP_MARKS[self]}"


STEP_MARKS: Final = {
    StepMark.BACKWARD: "a backward",
    StepMark.LOADER: "a batch of the DataLoader",
    StepMark.LOOP: "a turn of the loop around",
}


class CopyDirection(Enum):
    """Which way a copy goes."""

    H2D = "h2d"
    D2H = "d2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """The host would wait ``count`` times at this site, for this reason.

    Of a program it did so in ``in_steps`` steps; ``once``, before the first one was
    over and never again. ``torch`` is the line of torch's own code that waits.
    """

    kind: AuditKind
    op: str
    reason: str
    site: Site
    count: int
    in_steps: int = 0
    once: bool = False
    torch: Location | None = None

    @property
    def repeats(self) -> bool:
        """Whether it is certain and happened in more than one step."""
        return self.kind is not AuditKind.MAYBE and self.in_steps > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCopy:
    """Copies between host and device at one site; ``total_bytes`` over all of them.

    ``pinned`` says what the host's side is. A ``blocking`` copy makes the host wait
    until it is done.
    """

    op: str
    direction: CopyDirection
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
    formulas, see ``op_plan``.
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
    compiled. ``work`` says, if that was asked for, how many operations a line
    ran, or the code that it called. ``steps`` counts those of a program with its own
    loop, 0 if nobody counted them; ``mark`` is what they were counted by, ``loop`` a
    line of the loop if it was that. ``garbage`` is what each of them leaves to the garbage
    collector.
    """

    findings: tuple[AuditFinding, ...]
    copies: tuple[AuditCopy, ...]
    totals: Totals
    not_judged: tuple[Unjudged, ...]
    as_eager: tuple[Unjudged, ...]
    work: tuple[tuple[Location, bool, int], ...] = ()
    steps: int = 0
    mark: StepMark | None = None
    loop: Location | None = None
    garbage: Garbage | None = None

    @property
    def touched_gpu(self) -> bool:
        """Whether anything at all happened on the device."""
        return bool(self.totals.ops or self.copies or self.findings or self.not_judged)

    @property
    def repeating(self) -> int:
        """Certain waits, but for those of a program that happened in one step only."""
        if self.steps <= 1:
            return self.totals.syncs
        return sum(f.count for f in self.findings if f.repeats)


# Waits inside blocks of ``allow_sync``: one recorder a block keeps them apart.


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitKey:
    """What two recorders agree on about a wait: all but the forward line."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedStep:
    """What one step did, what of it was allowed, and what the step returned."""

    audit: StepAudit
    allowed: Mapping[tuple[WaitKey, str], int]
    result: object
