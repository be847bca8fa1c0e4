"""Looks at an operation about to run and records what a GPU would make of it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from .backward_rules import BackwardWatch
from .call import MASKS
from .call import Call
from .ghost import is_ghost
from .placement import is_host
from .plan import Plan
from .plan import schema_of
from .record import Direction
from .recorder import WATCH
from .recorder import current_node
from .transfers import PINNED
from .transfers import record_copy


_backward = BackwardWatch()


def observe(
    plan: Plan, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if current_node() is not None:
        _backward.look()
    if plan.launches:
        WATCH.launch()
    if plan.transfers:
        _record_transfer(plan, args, kwargs)
    if plan.rules:
        call = Call(schema_of(func), args, kwargs, is_ghost)
        for rule in plan.rules:
            if times := rule.when(call):
                WATCH.wait(rule.kind, plan.op, rule.reason, times * rule.count)
        if plan.indexes:
            _record_host_indices(plan.op, args[1])
    if plan.keeps_forward and torch.is_grad_enabled():
        WATCH.remember_forward()


def _record_transfer(
    plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if plan.name == "_to_copy":
        source, is_fresh = args[0], True
        to_device = not is_host(kwargs.get("device"))
        host, non_blocking = None, kwargs.get("non_blocking", False)
    else:
        target, source, is_fresh = args[0], args[1], False
        to_device = is_ghost(target)
        host = source if to_device else target
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)  # noqa: PLR2004
    from_device = is_ghost(source)
    if from_device is to_device:
        return
    pinned = bool(non_blocking) if is_fresh else PINNED.holds(host)
    if to_device and not source.is_contiguous():
        pinned = False
    direction = Direction.H2D if to_device else Direction.D2H
    record_copy(
        plan.op,
        direction,
        pinned=pinned,
        non_blocking=bool(non_blocking),
        nbytes=source.numel() * source.element_size(),
    )


def _record_host_indices(op: str, indices: Sequence[Any]) -> None:
    for index in indices:
        if index is not None and not is_ghost(index) and index.numel():
            nbytes = index.numel() * index.element_size()
            pinned = index.dtype in MASKS
            WATCH.copy(
                op, Direction.H2D, pinned=pinned, blocking=not pinned, nbytes=nbytes
            )
