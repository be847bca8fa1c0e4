"""Parameters of lazy modules, which are of the device before they have a shape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Final

import torch
from torch.nn import parameter
from torch.nn.parameter import UninitializedBuffer
from torch.nn.parameter import UninitializedParameter

from .device_names import CUDA
from .patches import Patch
from .placement import is_cuda


MARK: Final = "_waits_for_cuda"
"""Attribute of one that is to be made on the device."""

UninitializedTensorMixin: Final[Any] = vars(parameter)["UninitializedTensorMixin"]
"""What both kinds are made of; torch's stub lacks it."""

_materialize = UninitializedTensorMixin.materialize


def uninitialized_patches() -> Iterator[Patch]:
    """How they are made and how they get their shape."""
    yield Patch(UninitializedTensorMixin, "materialize", materialize)
    for kind in (UninitializedParameter, UninitializedBuffer):
        yield Patch(kind, "__new__", _marking(kind.__new__))


def is_uninitialized(tensor: Any) -> bool:
    """Whether *tensor* has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def mark(tensor: Any) -> Any:
    """Remember that *tensor* is to be made on the device."""
    setattr(tensor, MARK, True)
    return tensor


def materialize(tensor: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
    """Make *tensor* what it stands for, on the device where it was taken there."""
    __tracebackhide__ = True
    if not is_cuda(CUDA if device is None and hasattr(tensor, MARK) else device):
        _materialize(tensor, shape, device, dtype)
        return
    made = torch.empty(shape, dtype=dtype or tensor.data.dtype, device=CUDA)
    if isinstance(tensor, UninitializedParameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    torch.utils.swap_tensors(tensor, made)


def _marking(new: Callable[..., Any]) -> Callable[..., Any]:
    """*new*, on the host and marked where its ``device`` is the pretend one."""

    @functools.wraps(new)
    def made(cls: Any, *args: Any, device: Any = None, **options: Any) -> Any:
        if not is_cuda(device):
            return new(cls, *args, device=device, **options)
        return mark(new(cls, *args, **options))

    return made
