"""``copy.deepcopy`` of tensors on the device."""

from __future__ import annotations

import copy
from typing import Any

import torch


def deep_copy(ghost: Any, memo: dict[int, Any]) -> Any:
    """Copy *ghost*, its gradient and its users' attributes.

    Raises torch's own ``RuntimeError`` for a tensor that has a history.
    """
    if id(ghost) in memo:
        return memo[id(ghost)]
    if not ghost.is_leaf:
        msg = (
            "Only Tensors created explicitly by the user (graph leaves) support the "
            "deepcopy protocol at the moment."
        )
        raise RuntimeError(msg)
    with torch.no_grad():
        copied = ghost.detach().clone()
    return _with_state_of(ghost, copied, memo)


def _with_state_of(ghost: Any, copied: Any, memo: dict[int, Any]) -> Any:
    memo[id(ghost)] = copied
    for name, value in ghost.__dict__.items():
        if name != "inside":
            setattr(copied, name, copy.deepcopy(value, memo))
    copied.requires_grad_(ghost.requires_grad)
    if ghost.grad is not None:
        copied.grad = copy.deepcopy(ghost.grad, memo)
    return copied
