"""When a rule about sparse tensors applies; see ``conditions``."""

from __future__ import annotations

from typing import Any

import torch

from .call import Call
from .conditions import Condition


FEWEST_TO_COALESCE = 2
"""Elements from which on coalescing takes kernels; torch has fewer for coalesced."""


def has_several(call: Call) -> int:
    """The sparse tensor has elements that could be the same one."""
    return int(call.on_device("self") and _elements(call["self"]))


def uncoalesced(call: Call) -> int:
    """Once for each sparse tensor that may hold an element twice."""
    return sum(map(_is_uncoalesced, _on_device(call)))


def is_sparse(name: str) -> Condition:
    """The argument *name* is a sparse tensor on the device."""
    return lambda call: int(call.on_device(name) and call[name].is_sparse)


def along_sparse(name: str) -> Condition:
    """``self`` is sparse, and *name* is one of its sparse dimensions."""

    def condition(call: Call) -> int:
        tensor = call["self"]
        if not call.on_device("self") or not tensor.is_sparse:
            return 0
        return int(call[name] % tensor.dim() < _inside(tensor).sparse_dim())

    return condition


def keeps_sparse(call: Call) -> int:
    """A sum over some but not all sparse dimensions has a sparse gradient."""
    if not call.on_device("grad") or not call["grad"].is_sparse:
        return 0
    tensor = call["self"]
    sparse = _inside(tensor).sparse_dim()
    return int(any(dim % tensor.dim() < sparse for dim in call["dim"]))


def unflattened(call: Call) -> int:
    """A sparse tensor of several sparse dimensions, uncoalesced, becomes dense."""
    tensors = _on_device(call)
    if all(t.is_sparse for t in tensors) and len(tensors) > 1:
        return 0
    return sum(_is_uncoalesced(t) and _inside(t).sparse_dim() > 1 for t in tensors)


def number_of(name: str) -> Condition:
    """The argument *name* is one number on the device."""
    return lambda call: int(call.on_device(name) and call[name].numel() == 1)


def _on_device(call: Call) -> list[Any]:
    return [tensor for tensor in call.tensors() if hasattr(tensor, "inside")]


def _is_uncoalesced(tensor: Any) -> bool:
    if tensor.layout is not torch.sparse_coo:
        return False
    return not _inside(tensor).is_coalesced() and _elements(tensor)


def _elements(tensor: Any) -> bool:
    return bool(_inside(tensor)._nnz() >= FEWEST_TO_COALESCE)  # noqa: SLF001, its only name


def _inside(tensor: Any) -> Any:
    """The tensor itself: to ask a stand-in would be an operation of the step."""
    return tensor.inside
