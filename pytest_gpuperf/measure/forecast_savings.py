"""Memory optimizations that need no change of the user's code, applied for a while.

Each saving changes how a training step runs, not what it computes; dropout under
checkpointing keeps its masks, because checkpoint restores the generators' state.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from typing import Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint

from ..devices.memory_picture import Picture
from ..devices.pretend.memory import LiveMemory
from ..devices.pretend.memory import StepMemory
from ..devices.pretend.memory_watch import ProgramMemory
from ..devices.pretend.tensor_values import INSIDES
from ..model.forecast import Forecast
from ..model.forecast import Saving
from .emulated import COMPILED_PEAK
from .emulated import COMPILED_RESERVED
from .emulated import PREDICTED_PEAKS
from .emulated import SEVERAL_STREAMS
from .memory import findings_of_picture


# Turns the memory of simulated steps into the forecast for a real GPU.

UNTOUCHED: Final = "nothing was ever on the GPU: put model and data there"


def forecast_of_program(memory: ProgramMemory) -> Forecast:
    """Sum up the *memory* of a program, at its end."""
    memory.end()
    forecast = forecast_of(
        memory.memories(), memory.live, memory.picture, ended=memory.steps
    )
    steps = memory.mark.sentence if memory.mark else ""
    return replace(forecast, notes=(steps, *forecast.notes)) if steps else forecast


def forecast_of(
    steps: Sequence[StepMemory],
    live: LiveMemory,
    picture: Picture | None,
    *,
    ended: int,
) -> Forecast:
    """Sum up *steps*, at least one, of which so many have *ended*."""
    unjudged = [f"{op}: {reason}" for op, reason in live.unjudged]
    if not any(step.allocated_bytes for step in steps):
        unjudged.append(UNTOUCHED)
    return Forecast(
        allocated_bytes=max(step.allocated_bytes for step in steps),
        reserved_bytes=max(step.reserved_bytes for step in steps),
        steps=ended,
        findings=tuple(findings_of_picture(picture, PREDICTED_PEAKS))
        if picture
        else (),
        not_judged=tuple(unjudged),
        notes=tuple(_notes(live)),
        as_eager=live.is_compiled,
    )


def _notes(live: LiveMemory) -> Iterator[str]:
    if INSIDES.switched:
        yield INSIDES.switched
    if live.is_compiled:
        yield f"{COMPILED_PEAK}; {COMPILED_RESERVED}"
    if live.several_streams:
        yield f"{SEVERAL_STREAMS}: a GPU may reserve more"


def applied(saving: Saving) -> AbstractContextManager[None]:
    """Apply *saving* for all steps inside the context.

    CHECKPOINT takes the blocks that are alive on entry, and raises ``LookupError``
    if none is repeated.
    """
    return APPLIED[saving]()


@contextmanager
def _early_zero_grad() -> Iterator[None]:
    """Free gradients once the optimizer has used them.

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
    """Step optimizers with these options if they have them; restore their own after."""
    # The groups are changed in a hook, as optimizers may be made inside the context.
    # They are restored in reverse: a group that was changed twice ends with its first
    # value.
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
        msg = "no module has several blocks of one class"
        raise LookupError(msg)
    with ExitStack() as undo:
        for block in blocks:
            # Only an attribute of the instance is put back; a method of the class
            # appears again by itself.
            own = vars(block).get("forward")
            block.forward = _recomputing(block, block.forward)
            undo.callback(_restore, block, own)
        yield


def _recomputing(block: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is saved for a backward, so there is nothing to
        # recompute.
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
    """Yield the outermost modules that are in a list with others of their class.

    Only those with submodules: to recompute a single layer saves nothing.
    """
    # The step is a closure, so its model is found through the collector. ``type`` and
    # not isinstance, which would run ``__class__`` of proxies.
    lists = [m for m in gc.get_objects() if issubclass(type(m), _MODULE_LISTS)]
    found = [block for listed in lists for block in _alike(listed)]
    inner = {id(part) for block in found for part in list(block.modules())[1:]}
    yield from (block for block in found if id(block) not in inner)


_MODULE_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


def _alike(modules: Iterable[Any]) -> Iterator[Any]:
    blocks = [block for block in modules if next(block.children(), None) is not None]
    kinds = Counter(type(block) for block in blocks)
    yield from (block for block in blocks if kinds[type(block)] > 1)


APPLIED: dict[Saving, Callable[[], AbstractContextManager[None]]] = {
    Saving.EARLY_ZERO_GRAD: _early_zero_grad,
    Saving.FOR_LOOP: partial(_updating, foreach=False, fused=False),
    Saving.FUSED: partial(_updating, foreach=False, fused=True),
    Saving.CHECKPOINT: _checkpointed,
    Saving.HALF_BATCH: _gradients_kept,
}
