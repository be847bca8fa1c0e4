"""What can be done about memory without touching the user's code, pulled for a while.

Each lever changes how a training step runs, not what it computes; dropout under
checkpointing keeps its masks, because checkpoint restores the generators' state.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint

from ..model.forecast import Lever


def pulled(lever: Lever) -> AbstractContextManager[None]:
    """Pull *lever* for all steps inside the context.

    CHECKPOINT takes the blocks that are alive on entry, and raises ``LookupError``
    where none is repeated.
    """
    return PULLS[lever]()


@contextmanager
def _early_zero_grad() -> Iterator[None]:
    """Let gradients go once the optimizer has used them.

    They are gone before the next forward, and nothing reads them in between.
    """
    handle = register_optimizer_step_post_hook(_forget_gradients)
    try:
        yield
    finally:
        handle.remove()


def _forget_gradients(optimizer: Any, *_: object) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@contextmanager
def _updating(**how: bool) -> Iterator[None]:
    """Step optimizers in this way if they know it; afterwards in their own again."""
    changed: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def change(optimizer: Any, *_: object) -> None:
        for group in optimizer.param_groups:
            own = {name: group[name] for name in how if name in group}
            changed.append((group, own))
            group.update({name: how[name] for name in own})

    handle = register_optimizer_step_pre_hook(change)
    try:
        yield
    finally:
        handle.remove()
        for group, own in reversed(changed):
            group.update(own)


@contextmanager
def _gradients_kept() -> Iterator[None]:
    """Zero gradients in place: under accumulation they live through the next forward."""
    owners = (torch.nn.Module, torch.optim.Optimizer)
    own = {owner: owner.zero_grad for owner in owners}
    for owner, zero_grad in own.items():
        owner.zero_grad = _in_place(zero_grad)
    try:
        yield
    finally:
        for owner, zero_grad in own.items():
            owner.zero_grad = zero_grad


def _in_place(zero_grad: Callable[..., None]) -> Callable[..., None]:
    def zero(owner: Any, set_to_none: bool = True) -> None:  # noqa: ARG001, FBT001, FBT002, torch's
        zero_grad(owner, set_to_none=False)

    return zero


@contextmanager
def _checkpointed() -> Iterator[None]:
    blocks = list(repeated_blocks())
    if not blocks:
        msg = "no module holds several blocks of one class"
        raise LookupError(msg)
    with ExitStack() as undo:
        for block in blocks:
            own = vars(block).get("forward")
            block.forward = _recomputing(block, block.forward)
            undo.callback(_restore, block, own)
        yield


def _recomputing(block: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not (block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def _restore(block: Any, own: Callable[..., Any] | None) -> None:
    if own is None:
        del block.forward
    else:
        block.forward = own


def repeated_blocks() -> Iterator[Any]:
    """Modules alive that stand in a list with others of their class, outermost ones.

    Those with parts only: recomputing a single layer saves nothing.
    """
    holders = [m for m in gc.get_objects() if issubclass(type(m), _HOLDERS)]
    found = [block for holder in holders for block in _alike(holder)]
    inner = {id(part) for block in found for part in list(block.modules())[1:]}
    yield from (block for block in found if id(block) not in inner)


_HOLDERS = (torch.nn.ModuleList, torch.nn.Sequential)


def _alike(holder: Iterable[Any]) -> Iterator[Any]:
    blocks = [block for block in holder if next(block.children(), None) is not None]
    kinds = Counter(type(block) for block in blocks)
    yield from (block for block in blocks if kinds[type(block)] > 1)


PULLS: dict[Lever, Callable[[], AbstractContextManager[None]]] = {
    Lever.EARLY_ZERO_GRAD: _early_zero_grad,
    Lever.FOR_LOOP: partial(_updating, foreach=False, fused=False),
    Lever.FUSED: partial(_updating, foreach=False, fused=True),
    Lever.CHECKPOINT: _checkpointed,
    Lever.HALF_BATCH: _gradients_kept,
}
