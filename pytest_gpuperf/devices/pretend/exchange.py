"""Memory that torch lends to itself by way of DLPack: one storage, two tensors."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import dlpack

from .ghost import Ghost
from .ghost import is_ghost
from .patches import Patch


class Capsule:
    """Stands in for a capsule of the memory of *ghost*, which no other library opens."""

    def __init__(self, ghost: Ghost) -> None:
        self.ghost = ghost


def exchange_patches() -> Iterator[Patch]:
    """Both directions, by both of their names."""
    for owner in (torch, dlpack):
        yield Patch(owner, "from_dlpack", _unpacking(owner.from_dlpack))
        yield Patch(owner, "to_dlpack", _packing(owner.to_dlpack))


def _unpacking(from_dlpack: Callable[..., Any]) -> Callable[..., Any]:
    def unpack(packed: Any, **options: Any) -> Any:
        if isinstance(packed, Capsule):
            packed = packed.ghost
        if not is_ghost(packed):
            return from_dlpack(packed, **options)
        _refuse_gradients(packed)
        return packed.clone() if options.get("copy") else packed.detach()

    return unpack


def _packing(to_dlpack: Callable[..., Any]) -> Callable[..., Any]:
    def pack(tensor: Any) -> Any:
        return Capsule(tensor) if is_ghost(tensor) else to_dlpack(tensor)

    return pack


def _refuse_gradients(tensor: Any) -> None:
    __tracebackhide__ = True
    if tensor.requires_grad:
        msg = "Can't export tensors that require gradient, use tensor.detach()"
        raise BufferError(msg)
