"""Memory at the peak of a step, by purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from ..model.finding import CUBLAS_WORKSPACES, Finding, FindingKind, MemoryCourse, Phase
from .source_lines import Site, where_of


class StorageRole(Enum):
    """What a storage is for."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    """Made by the forward."""
    INPUTS = "inputs"
    """There before the step and nothing of the others: batches, buffers."""
    KEPT = "kept from earlier steps"
    """There before the step as well: several steps have left it, each its own."""
    TEMPORARIES = "temporaries"
    """Made by the backward or the optimizer, and no gradient."""
    WORKSPACES = CUBLAS_WORKSPACES
    UNSEEN = "beyond tensors"
    """What libraries keep, and what kernels take and give back inside."""


def role_by_birth(site: Site | None) -> StorageRole:
    """Return the role of what no owner claims; no *site* means from before the step."""
    if site is None or site.phase is Phase.DATA:
        return StorageRole.INPUTS
    made_forward = site.phase is Phase.FORWARD
    return StorageRole.ACTIVATIONS if made_forward else StorageRole.TEMPORARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A storage alive at the peak; without a ``site`` it is from before the step."""

    nbytes: int
    role: StorageRole
    op: str
    site: Site | None


class Collecting(Enum):
    """Who runs the garbage collector where steps are over."""

    BY_PYTHON = "python"
    """Nobody asks: Python runs it at some time."""
    BY_STEP = "step"
    """The step itself did."""
    NEVER = "never"
    """The measured code has switched it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """What a step leaves: bytes, by line.

    Nothing frees it, or only the garbage collector, in a ``cycle``.
    """

    nbytes: int
    held: tuple[Finding, ...] = ()
    cycle: str = ""

    @property
    def reason(self) -> str:
        """Say what keeps it, if that is known."""
        return in_a_cycle(self.cycle)


NOTHING_LEFT: Final = Garbage(nbytes=0)


def in_a_cycle(cycle: str) -> str:
    """Say that a *cycle* keeps memory; nothing if none was found."""
    return f"in a cycle of {cycle}" if cycle else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The peak of a step: where, and what is alive.

    ``held`` lists what was taken in this step, the largest first. Without a ``site``
    the peak is at the step's start, before its first operation. ``course`` is the
    memory over the whole step.
    """

    op: str
    site: Site | None
    by_role: Mapping[StorageRole, int]
    held: tuple[Finding, ...]
    course: MemoryCourse | None = field(default=None, compare=False)


def held_by_place(
    births: Iterable[tuple[int, str, Site]], kind: FindingKind, reason: str = ""
) -> tuple[Finding, ...]:
    """Add up *births* (bytes, operation, place), oldest first; the youngest comes first.

    What a program keeps is mostly what it computed last: the rest is referenced by it.
    """
    nbytes: dict[tuple[str, Site], int] = {}
    blocks: Counter[tuple[str, Site]] = Counter()
    for size, op, site in births:
        # Taken out and put in again: a dict keeps the order of the first insertion, and
        # the last birth is to decide.
        nbytes[op, site] = nbytes.pop((op, site), 0) + size
        blocks[op, site] += 1
    return tuple(
        Finding(
            kind=kind,
            op=op,
            per_step=blocks[op, site],
            metrics=(),
            reason=reason,
            held_bytes=total,
            **where_of(site),
        )
        for (op, site), total in reversed(nbytes.items())
    )


def picture_of(alive: Sequence[LiveBlock], op: str, site: Site | None) -> Picture:
    """Sort what is *alive* at the peak, which *op* made at *site*."""
    by_role: Counter[StorageRole] = Counter()
    for storage in alive:
        by_role[storage.role] += storage.nbytes
    births = [(s.nbytes, s.op, s.site) for s in reversed(alive) if s.site is not None]
    held = held_by_place(births, FindingKind.MEMORY)
    largest = sorted(held, key=lambda found: -found.held_bytes)
    return Picture(op=op, site=site, by_role=by_role, held=tuple(largest))


# Memory over a step, by purpose.

OTHER: Final = "other"
"""Inputs and temporaries together."""

PURPOSES: Final = (
    StorageRole.PARAMETERS.value,
    StorageRole.OPTIMIZER_STATE.value,
    StorageRole.GRADIENTS.value,
    StorageRole.ACTIVATIONS.value,
    StorageRole.WORKSPACES.value,
    OTHER,
)
"""What is kept apart, what changes least first."""

MOST_MOMENTS: Final = 120

KIB: Final = 2**10


class Change(NamedTuple):
    """The size of a storage from some moment on, 0 if it is released.

    ``phase`` is that of the operation which took it; ``None`` if nobody knows.
    """

    number: int
    nbytes: int
    role: StorageRole
    phase: Phase | None = None


def course_of(before: Iterable[Change], changes: Iterable[Change]) -> MemoryCourse:
    """Follow *changes* in a step, from what was there *before* it."""
    alive: dict[int, tuple[int, int]] = {}
    now = [0] * len(PURPOSES)
    for change in before:
        _apply(change, alive, now)
    sizes, phases = [tuple(now)], [""]
    for change in changes:
        _apply(change, alive, now)
        sizes.append(tuple(now))
        phases.append(_phase(change.phase, phases[-1]))
    return _thinned(sizes, phases)


def _apply(change: Change, alive: dict[int, tuple[int, int]], now: list[int]) -> None:
    purpose, nbytes = alive.pop(change.number, (0, 0))
    now[purpose] -= nbytes
    if change.nbytes:
        purpose = _purpose(change.role)
        alive[change.number] = purpose, change.nbytes
        now[purpose] += change.nbytes


def _purpose(role: StorageRole) -> int:
    return PURPOSES.index(role.value if role.value in PURPOSES else OTHER)


def _phase(phase: Phase | None, before: str) -> str:
    """Name the phase; what is only released, or prepared, belongs to the one before."""
    return before if phase is None or phase is Phase.DATA else phase.value


def _thinned(sizes: Sequence[tuple[int, ...]], phases: Sequence[str]) -> MemoryCourse:
    """Keep the largest of neighbouring moments, so that no peak is lost."""
    width = -(-len(sizes) // MOST_MOMENTS)
    groups = [
        range(at, min(at + width, len(sizes))) for at in range(0, len(sizes), width)
    ]
    kept = [max(group, key=lambda moment: sum(sizes[moment])) for group in groups]
    totals = [sum(sizes[moment]) for moment in kept]
    rows = zip(*(sizes[moment] for moment in kept), strict=True)
    return MemoryCourse(
        purposes=PURPOSES,
        kib=tuple(_row(row) for row in rows),
        phases=tuple(_begins([phases[moment] for moment in kept])),
        peak=totals.index(max(totals)),
    )


def _row(nbytes: Sequence[int]) -> tuple[int, ...]:
    kib = tuple(-(-size // KIB) for size in nbytes)
    return kib[:1] if len(set(kib)) == 1 else kib


def _begins(phases: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each phase with its first moment, as long as there is one."""
    numbered = groupby(enumerate(phases), key=lambda place: place[1])
    for phase, places in numbered:
        if phase:
            yield phase, next(places)[0]


# Graphs of autograd that steps leave.


def graphs_left(alive: Sequence[tuple[int, int]]) -> int | None:
    """Return the graphs that every step leaves, of the tensors and nodes *alive* after each.

    It is one as well where no tensor is left and the graph of another gets longer.
    """
    tensors = least_rise([tensors for tensors, _ in alive])
    nodes = least_rise([nodes for _, nodes in alive])
    return tensors or (nodes and 1)


def least_rise(values: Sequence[int]) -> int | None:
    """Return the least that a step leaked; 0 if one of them left nothing."""
    grown = [after - before for before, after in pairwise(values)]
    return max(0, min(grown)) if grown else None


def remark_on_graphs(kept: int, where: str = "") -> str:
    """Say that every step keeps so many graphs, and *where*."""
    graphs = "a graph" if kept == 1 else f"{kept} graphs"
    return f"every step keeps {graphs} of autograd alive{where}: detach() what is kept"
