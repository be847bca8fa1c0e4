"""The memory behind tensors: views and aliases share one storage."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import Final

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


HOST: Final = torch.device("cpu")


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """Tensors among *values* and in their lists and tuples, as operations nest them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def storages_of(tensor: Any, device: Any = HOST) -> tuple[Any, ...]:
    """Storages on *device* behind *tensor*; none for layouts that hide theirs.

    A wrapper has those of what it wraps: its own one holds nothing, and that of a
    DTensor says the size of all ranks' parts.
    """
    if tensor.device != device:
        return ()
    if is_traceable_wrapper_subclass(tensor):
        return tuple(part for t in _wrapped(tensor) for part in storages_of(t, device))
    if tensor.layout is torch.strided:
        return (tensor.untyped_storage(),)
    if tensor.layout is torch.sparse_coo:
        parts = tensor._indices(), tensor._values()  # noqa: SLF001, indices() coalesces
        return tuple(part.untyped_storage() for part in parts)
    return ()


def _wrapped(tensor: Any) -> Iterator[Any]:
    """Tensors of which *tensor* says that it is made: some of its names may be none."""
    names, _ = tensor.__tensor_flatten__()
    found = (getattr(tensor, name) for name in names)
    return (value for value in found if isinstance(value, torch.Tensor))


def key_of(storage: Any) -> int:
    """Address of the storage's implementation, unique while it lives."""
    key: int = storage._cdata  # noqa: SLF001, data_ptr() is the same for all empty ones
    return key
