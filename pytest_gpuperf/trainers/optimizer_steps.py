"""Loops of which nothing is known but that torch's optimizers make their steps.

Their steps end where the first optimizer has made a step, which torch itself tells
those that ask for it (``register_optimizer_step_post_hook``). So accelerate's loops are
measured, which their users write, and trainers such as torchtitan's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .handover import LoopMeasured
from .training import EndStep


class OptimizerLoop:
    """Calls *train*, again when it returns if it *repeats*, until all is measured."""

    batches = None

    def __init__(
        self, name: str, train: Callable[[], object], *, repeats: bool
    ) -> None:
        self.name = name
        self._train = train
        self._repeats = repeats

    @property
    def remedy(self) -> str:
        """What to do if it ends before all is measured."""
        if self._repeats:
            return (
                "when it was called again no optimizer of torch made a step; let it "
                f"train at each call, or {BY_HAND}"
            )
        return f"set a larger number of steps in its configuration, or {BY_HAND}"

    def run(self, end_step: EndStep) -> None:
        """Train until *end_step* says that it is enough."""
        over = LoopMeasured()
        try:
            while self._stepped(end_step, over) and self._repeats:
                pass
        except LoopMeasured as error:
            if error is not over:
                raise

    def _stepped(self, end_step: EndStep, over: LoopMeasured) -> bool:
        """Call the loop once; return whether it made a step."""
        optimizers: list[object] = []

        def stepped(optimizer: object, *_: object) -> None:
            if not optimizers:
                optimizers.append(optimizer)
            # A step of several optimizers ends with that of the first.
            if optimizer is optimizers[0] and not end_step():
                raise over

        with each_step(stepped):
            self._train()
        return bool(optimizers)


BY_HAND = (
    "say where its steps end: `with gpuperf.steps() as step:`, and a call of step() at "
    "the end of each"
)


@contextmanager
def each_step(stepped: Callable[..., None]) -> Iterator[None]:
    """Call *stepped* whenever an optimizer of torch has made a step."""
    optimizer: Any = sys.modules.get("torch.optim.optimizer")
    if optimizer is None:
        yield
        return
    hook = optimizer.register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        hook.remove()
