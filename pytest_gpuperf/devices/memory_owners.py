"""Whose tensors are alive in this process: the modules', the optimizers', autograd's."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Final

import torch

from .memory_picture import Role


ORDER: Final = tuple(Role)


def owned_tensors() -> Iterator[tuple[Any, Role]]:
    """Yield what has a role that its owner tells right now; a tensor may come twice.

    Subclasses of tensors are not to see it: call it with their torch functions off.
    """
    for candidate in gc.get_objects():
        kind = type(candidate)  # not isinstance: it would ask proxies for their class
        if issubclass(kind, torch.Tensor):
            yield from _of_autograd(candidate, kind)
        elif issubclass(kind, torch.optim.Optimizer):
            for state in candidate.state.values():
                yield from ((tensor, Role.OPTIMIZER_STATE) for tensor in _flat(state))


def roles_of(claims: Iterable[tuple[int, Role]]) -> Mapping[int, Role]:
    """Give each storage, by its number, the role that ``Role`` lists first of its own."""
    roles: dict[int, Role] = {}
    for number, role in claims:
        roles[number] = min(roles.get(number, role), role, key=ORDER.index)
    return roles


def _of_autograd(tensor: Any, kind: type[Any]) -> Iterator[tuple[Any, Role]]:
    if issubclass(kind, torch.nn.Parameter) or tensor.__dict__.get("_is_param"):
        yield tensor, Role.PARAMETERS
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad, Role.GRADIENTS


def _flat(state: Any) -> Iterator[Any]:
    if isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, (list, tuple)):
        for value in state:
            yield from _flat(value)
    elif isinstance(state, torch.Tensor):
        yield state
