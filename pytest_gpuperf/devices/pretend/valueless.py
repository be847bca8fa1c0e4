"""Runs an operation on the insides of ghosts that hold no values."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import StepError
from .call import MASKS
from .guesses import GUESSED
from .guesses import LEAVES
from .guesses import leave_unjudged
from .guesses import positions
from .plan import Plan
from .rules import INDEXING
from .substitutes import mapped


def run_without_values(
    plan: Plan, args: list[Any], kwargs: dict[str, Any], *, to_host: bool
) -> Any:
    """Run an operation for sizes only.

    Tensors that hold values all the same (the host's, and ghosts from before values
    were given up) are taken for their sizes. Raises ``StepError`` for an operation
    whose sizes torch does not tell.
    """
    __tracebackhide__ = True
    if plan.transfers and to_host:
        return _guessed_on_host(plan, args, kwargs)
    if plan.name == "copy_":
        return args[0]
    if plan.views or to_host:
        return plan.kernel(*args, **kwargs)
    args, kwargs = mapped(_sized, args), dict(_sized_all(kwargs))
    if guess := GUESSED.get(plan.name):
        return guess(*args, **kwargs)
    if plan.name in INDEXING and not plan.sources:
        args[1] = _without_masks(args[1])
    return _run(plan, args, kwargs)


def _run(plan: Plan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    try:
        return plan.kernel(*args, **kwargs)
    except NotImplementedError:
        if plan.writes_only:
            return None
    msg = (
        f"{plan.op} has no meta kernel, so the pretend GPU cannot go on after it where "
        "values do not fit: register one with torch.library, or run this step on a GPU"
    )
    raise StepError(msg)


def _guessed_on_host(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Copy to the host what nobody knows: the target as it was, or zeros."""
    leave_unjudged(plan.op, LEAVES)
    if plan.name == "copy_":
        return args[0]
    dtype = kwargs.get("dtype") or args[0].dtype
    return torch.zeros(args[0].shape, dtype=dtype)


def _sized(tensor: Any) -> Any:
    if tensor.is_meta or tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
    )


def _sized_all(kwargs: Mapping[str, Any]) -> Any:
    for name, value in kwargs.items():
        if name != "generator":
            yield name, mapped(_sized, [value])[0]


def _without_masks(indices: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        is_mask = index is not None and index.dtype in MASKS
        found += positions(index) if is_mask else [index]
    return found
