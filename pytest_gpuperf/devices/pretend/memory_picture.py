"""What the memory of the pretend GPU is for, at the moment when most of it is taken."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from .caching_allocator import rounded
from .ghost import Ghost
from .live_memory import LiveMemory
from .live_memory import MemoryEvent
from .record import Phase
from .record import Site


class Role(Enum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one operation at one place holds at the peak."""

    op: str
    site: Site
    nbytes: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The peak of a step: where, and what is alive, blocks rounded.

    ``held`` lists what was taken in this step, the largest first.
    """

    op: str
    site: Site
    by_role: Mapping[Role, int]
    held: tuple[Held, ...]


def roles_now(live: LiveMemory) -> Mapping[int, Role]:
    """Roles of the storages, by their numbers, that their owners tell right now."""
    roles: dict[int, Role] = {}
    for tensor, role in _owned():
        number = live.number_of(tensor.inside) if type(tensor) is Ghost else None
        if number is not None:
            roles.setdefault(number, role)
    return roles


def _owned() -> Iterator[tuple[Any, Role]]:
    for candidate in gc.get_objects():
        kind = type(candidate)
        if kind is Ghost:
            if getattr(candidate, "_is_param", False):
                yield candidate, Role.PARAMETERS
            if candidate.is_leaf and candidate.grad is not None:
                yield candidate.grad, Role.GRADIENTS
        elif issubclass(kind, torch.optim.Optimizer):
            for state in candidate.state.values():
                yield from ((tensor, Role.OPTIMIZER_STATE) for tensor in _flat(state))


def _flat(state: Any) -> Iterator[Any]:
    if isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, (list, tuple)):
        for value in state:
            yield from _flat(value)
    else:
        yield state


def picture_of(
    alive: Mapping[int, MemoryEvent], roles: Mapping[int, Role], peak: MemoryEvent
) -> Picture:
    """Sort what is *alive* at the birth *peak*, which has a site, by *roles*."""
    assert peak.site is not None  # noqa: S101 - sites are recorded where pictures are
    by_role: Counter[Role] = Counter()
    nbytes: Counter[tuple[str, Site]] = Counter()
    blocks: Counter[tuple[str, Site]] = Counter()
    for number, birth in alive.items():
        by_role[roles.get(number) or _role_of(birth)] += rounded(birth.nbytes)
        if birth.site is not None:
            nbytes[birth.op, birth.site] += rounded(birth.nbytes)
            blocks[birth.op, birth.site] += 1
    held = tuple(
        Held(op=op, site=site, nbytes=total, blocks=blocks[op, site])
        for (op, site), total in nbytes.most_common()
    )
    return Picture(op=peak.op, site=peak.site, by_role=by_role, held=held)


def _role_of(birth: MemoryEvent) -> Role:
    if birth.workspace:
        return Role.WORKSPACES
    if birth.site is None or birth.site.phase is Phase.DATA:
        return Role.INPUTS
    made_forward = birth.site.phase is Phase.FORWARD
    return Role.ACTIVATIONS if made_forward else Role.TEMPORARIES
