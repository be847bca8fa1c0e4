"""Memory at the peak of a step, by purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..model.finding import Phase
from .source_lines import Site


class StorageRole(Enum):
    """What a storage is for."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    """Made by the forward."""
    INPUTS = "inputs"
    """There before the step and nothing of the others: batches, buffers."""
    TEMPORARIES = "temporaries"
    """Made by the backward or the optimizer, and no gradient."""
    WORKSPACES = "cuBLAS workspaces"
    UNSEEN = "beyond tensors"
    """What libraries keep, and what kernels take and give back inside."""


def role_by_birth(site: Site | None) -> StorageRole:
    """Return the role of what no owner claims; no *site* means from before the step."""
    if site is None or site.phase is Phase.DATA:
        return StorageRole.INPUTS
    made_forward = site.phase is Phase.FORWARD
    return StorageRole.ACTIVATIONS if made_forward else StorageRole.TEMPORARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A storage alive at the peak; without a ``site`` it is from before the step."""

    nbytes: int
    role: StorageRole
    op: str
    site: Site | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one operation at one place has in use at the peak."""

    op: str
    site: Site
    nbytes: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The peak of a step: where, and what is alive.

    ``held`` lists what was taken in this step, the largest first. Without a ``site``
    the peak is at the step's start, before its first operation.
    """

    op: str
    site: Site | None
    by_role: Mapping[StorageRole, int]
    held: tuple[Held, ...]


def held_by_place(births: Iterable[tuple[int, str, Site]]) -> tuple[Held, ...]:
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
        Held(op=op, site=site, nbytes=total, blocks=blocks[op, site])
        for (op, site), total in reversed(nbytes.items())
    )


def picture_of(alive: Collection[Alive], op: str, site: Site | None) -> Picture:
    """Sort what is *alive* at the peak, which *op* made at *site*."""
    by_role: Counter[StorageRole] = Counter()
    nbytes: Counter[tuple[str, Site]] = Counter()
    blocks: Counter[tuple[str, Site]] = Counter()
    for storage in alive:
        by_role[storage.role] += storage.nbytes
        if storage.site is not None:
            nbytes[storage.op, storage.site] += storage.nbytes
            blocks[storage.op, storage.site] += 1
    held = tuple(
        Held(op=op, site=site, nbytes=total, blocks=blocks[op, site])
        for (op, site), total in nbytes.most_common()
    )
    return Picture(op=op, site=site, by_role=by_role, held=held)
