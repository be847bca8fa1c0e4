"""Memory optimizations that need no change of the user's code, applied for a while.

Each saving changes how a training step runs, not what it computes; dropout under
checkpointing keeps its masks, because checkpoint restores the generators' state.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.checkpoint import checkpoint

from ..devices.simulated import (
    BACKING,
    ProgramMemory,
    settings_against_allocated,
    settings_against_reserved,
)
from ..model.finding import Location
from ..model.measurement import Forecast, Saving
from ..model.metrics import GARBAGE
from .emulated import (
    COLD_CACHE,
    COMPILED_PEAK,
    COMPILED_RESERVED,
    PREDICTED_PEAKS,
    SEVERAL_STREAMS,
)
from .memory import COLLECTOR_OFF, findings_of_garbage, findings_of_picture


# Turns the memory of simulated steps into the forecast for a real GPU.

UNTOUCHED: Final = "nothing was ever on the GPU: put model and data there"


def forecast_of_program(memory: ProgramMemory) -> Forecast:
    """Sum up the *memory* of a program of at least one step, at its end."""
    memory.end()
    steps, live, picture = memory.memories(), memory.live, memory.picture
    unchecked = [f"{op}: {reason}" for op, reason in live.unchecked]
    if allocated := settings_against_allocated(os.environ):
        unchecked.append(allocated)
    if not any(step.allocated_bytes for step in steps):
        unchecked.append(UNTOUCHED)
    forecast = Forecast(
        allocated_bytes=max(step.allocated_bytes for step in steps),
        reserved_bytes=max(step.reserved_bytes for step in steps),
        steps=memory.steps,
        findings=(
            *(findings_of_picture(picture, PREDICTED_PEAKS) if picture else ()),
            *memory.growth.held,
        ),
        growth_bytes=memory.growth.nbytes,
        not_checked=tuple(unchecked),
        as_eager=live.is_compiled,
        was_ended=memory.was_ended,
    )
    garbage = memory.garbage()
    if garbage.nbytes > GARBAGE.floor:
        found = findings_of_garbage(garbage, (GARBAGE.name,))
        forecast = replace(
            forecast,
            garbage_bytes=garbage.nbytes,
            uncollected_bytes=memory.uncollected_bytes(),
            findings=(*forecast.findings, *found),
        )
    return replace(forecast, notes=tuple(_notes(memory)))


def _from_here(place: Location) -> Location:
    near = Path(place.file).is_relative_to(Path.cwd())
    return replace(place, file=os.path.relpath(place.file)) if near else place


def _notes(memory: ProgramMemory) -> Iterator[str]:
    steps = memory.mark.sentence if memory.mark else ""
    if memory.loop:
        steps += f" {_from_here(memory.loop)}"
    if steps:
        yield steps
    yield from memory.graph_notes()
    if memory.is_uncollected:
        yield COLLECTOR_OFF.format(memory.steps)
    if BACKING.switched:
        yield BACKING.switched
    if memory.live.is_compiled:
        yield f"{COMPILED_PEAK}; {COMPILED_RESERVED}; {COLD_CACHE}"
    if not settings_against_allocated(os.environ):
        yield from filter(None, [settings_against_reserved(os.environ)])
    if memory.live.several_streams:
        yield f"{SEVERAL_STREAMS}: a GPU may reserve more"


def applied(saving: Saving) -> AbstractContextManager[None]:
    """Apply *saving* from now on, as if it were written in the code.

    Raises ``LookupError`` on leaving if there was nothing to apply it to: no optimizer
    that has the option, or no repeated blocks.
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
def _updating(option: str, **how: bool) -> Iterator[None]:
    """Step optimizers that have *option* with *how*; restore their own options after."""
    # The groups are changed in a hook, as optimizers may be made inside the context.
    # They are restored in reverse: a group that was changed twice ends with its first
    # value.
    changed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    lacking: set[str] = set()

    def change(optimizer: Any, *_: object) -> None:
        for group in optimizer.param_groups:
            if option not in group:
                lacking.add(type(optimizer).__name__)
            # What is fused stays so, whatever foreach says.
            elif option == "fused" or not group.get("fused"):
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
    if lacking and not changed:
        msg = f"{', '.join(sorted(lacking))} has no option {option}"
        raise LookupError(msg)


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
    """Recompute repeated blocks in the backward, from their first call on."""
    blocks = RepeatedBlocks()
    module: Any = torch.nn.Module
    call = module.__call__

    def called(block: Any, *args: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is saved for a backward, so there is nothing to
        # recompute.
        if blocks.has(block) and block.training and torch.is_grad_enabled():
            return checkpoint(call, block, *args, use_reentrant=False, **kwargs)
        return call(block, *args, **kwargs)

    module.__call__ = called
    try:
        yield
    finally:
        module.__call__ = call
    if not blocks.are_found:
        msg = "no module has several blocks of one class"
        raise LookupError(msg)


class RepeatedBlocks:
    """The outermost modules that are in a list with others of their class.

    Only those with submodules: to recompute a single layer saves nothing. ``are_found``
    says whether there were any so far.
    """

    def __init__(self) -> None:
        self._known: WeakSet[Any] = WeakSet()
        self._blocks: WeakSet[Any] = WeakSet()
        self.are_found = False

    def has(self, module: Any) -> bool:
        """Whether *module* is one of them."""
        # All modules alive are known then, so that the first call of a model is the only
        # one that looks.
        if module not in self._known:
            self._look()
            self._known.add(module)
        return module in self._blocks

    def _look(self) -> None:
        # The step is a closure, so its model is found through the collector. ``type``
        # and not isinstance, which would run ``__class__`` of proxies.
        modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]
        self._known.update(modules)
        lists = [m for m in modules if issubclass(type(m), _MODULE_LISTS)]
        found = [block for listed in lists for block in _alike(listed)]
        inner = {id(part) for block in found for part in list(block.modules())[1:]}
        self._blocks.update(block for block in found if id(block) not in inner)
        # Kept apart, as a program's model may be gone at its end.
        self.are_found = self.are_found or bool(found)


_MODULE_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


def _alike(modules: Iterable[Any]) -> Iterator[Any]:
    blocks = [block for block in modules if next(block.children(), None) is not None]
    kinds = Counter(type(block) for block in blocks)
    yield from (block for block in blocks if kinds[type(block)] > 1)


APPLIED: dict[Saving, Callable[[], AbstractContextManager[None]]] = {
    Saving.EARLY_ZERO_GRAD: _early_zero_grad,
    Saving.FOR_LOOP: partial(_updating, "foreach", foreach=False),
    Saving.FUSED: partial(_updating, "fused", foreach=False, fused=True),
    Saving.CHECKPOINT: _checkpointed,
    Saving.HALF_BATCH: _gradients_kept,
}
