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
from .layouts import SHOWN
from .layouts import leave_unknown_layouts
from .placement import is_host
from .plan import Plan
from .plan import schema_of
from .record import Direction
from .recorder import WATCH
from .recorder import current_node
from .rule import Rule
from .transfers import MOVED
from .transfers import PINNED
from .transfers import is_dense
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
        _apply(plan.rules, plan.op, Call(schema_of(func), args, kwargs, is_ghost))
        if plan.indexes:
            _record_host_indices(plan.op, args[1])
    if SHOWN.any:
        call = Call(schema_of(func), args, kwargs, is_ghost)
        _apply(plan.sparse_rules, plan.op, call)
        leave_unknown_layouts(t.inside for t in call.tensors() if is_ghost(t))
    if plan.keeps_forward and torch.is_grad_enabled():
        WATCH.remember_forward()


def _apply(rules: Sequence[Rule], op: str, call: Call) -> None:
    for rule in rules:
        if times := rule.when(call):
            WATCH.wait(rule.kind, op, rule.reason, times * rule.count)


def _record_transfer(
    plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if plan.name == "_to_copy":
        target, source, is_fresh = None, args[0], True
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
    if to_device and not _is_one_block(source, target):
        pinned = False
    direction = Direction.H2D if to_device else Direction.D2H
    record_copy(
        "aten::_to_copy" if MOVED.source is source else plan.op,
        direction,
        pinned=pinned,
        non_blocking=bool(non_blocking),
        nbytes=source.numel() * source.element_size(),
    )


def _is_one_block(source: Any, target: Any) -> bool:
    """Whether a copy to the device needs no contiguous one on the host before it.

    A new tensor takes the strides of one that is dense; see ``copy_requires_temporaries``
    in torch's Copy.cu.
    """
    if source.layout is not torch.strided:
        return True
    if source.is_contiguous() and (target is None or target.is_contiguous()):
        return True
    if target is not None and target.stride() != source.stride():
        return False
    return is_dense(source)


def _record_host_indices(op: str, indices: Sequence[Any]) -> None:
    for index in indices:
        if index is not None and not is_ghost(index) and index.numel():
            nbytes = index.numel() * index.element_size()
            pinned = index.dtype in MASKS
            WATCH.copy(
                op, Direction.H2D, pinned=pinned, blocking=not pinned, nbytes=nbytes
            )
