"""The step that calls one operation: a line that runs it, a line that differentiates it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """An operation with its arguments on the device.

    ``differentiable`` makes of the result what its backward pass begins with, as
    OpInfo's samples say; ``leaves`` are what it is differentiated by.
    """

    operation: Callable[..., Any]
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    differentiable: Callable[[Any], Any]
    leaves: Sequence[Any]


def forward(call: OperationCall) -> Any:
    return call.operation(*call.arguments, **call.named)


def backward(outputs: Sequence[Any], ones: Sequence[Any], leaves: Sequence[Any]) -> Any:
    return torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


def run(call: OperationCall) -> None:
    """Run the operation, and its backward pass where it has one."""
    out = forward(call)
    if not call.leaves:
        return
    outputs = [t for t in tensors_of(call.differentiable(out)) if t.requires_grad]
    if outputs:
        backward(outputs, [torch.ones_like(out) for out in outputs], call.leaves)


def tensors_of(tree: Any) -> list[Any]:
    leaves = _pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
