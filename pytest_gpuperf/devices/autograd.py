"""The autograd node that is running, and the tensors that keep a graph alive."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch


# Tensors that are alive with the autograd graph they came from.


def graphs_alive() -> int:
    """Count the tensors of this process that keep a graph; the caller collects garbage.

    No ``__torch_function__`` of a tensor subclass runs.
    """
    # Reading ``requires_grad`` of a subclass would call its ``__torch_function__``,
    # which may count, log or fail: an observer must not run the user's code.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
        return sum(map(_keeps_graph, gc.get_objects()))


def keeps_graph(tensor: torch.Tensor) -> bool:
    """Whether *tensor* came from others that need gradients."""
    return tensor.requires_grad and not tensor.is_leaf


def has_node(args: Sequence[object]) -> bool:
    """Whether an operation on *args* gets a node, where gradients are enabled at all."""
    return any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)


def _keeps_graph(candidate: object) -> bool:
    # Not isinstance: it reads ``__class__``, which runs code in lazy proxies. The
    # collector lists every object of the process, so some of them are proxies.
    return issubclass(type(candidate), torch.Tensor) and keeps_graph(candidate)


# Private, because torch has no public way to ask which node runs. It returns ``None``
# outside of a backward pass.
current_node = torch._C._current_autograd_node  # noqa: SLF001
