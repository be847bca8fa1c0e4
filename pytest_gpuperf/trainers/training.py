"""Measures the steps of a trainer: an adapter runs it and says where its steps end.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from typing import Protocol

from .batches import StepBatches
from .handover import Handover
from .handover import LoopMeasured
from .handover import Measure
from .handover import ended_early
from .handover import is_measured


EndStep = Callable[[], bool]
"""Ends a step; returns whether another one is wanted."""

ENDLESS_STEPS: Final = 10**9
"""More steps than any test measures, for trainers that take no "without end"."""


class TrainingLoop(Protocol):
    """A trainer of one framework, which is run by what that framework has for others."""

    @property
    def name(self) -> str:
        """What the trainer is, for errors."""

    @property
    def remedy(self) -> str:
        """What to do if it ends before all is measured."""

    @property
    def batches(self) -> StepBatches | None:
        """How long it waits for batches; ``None`` if it does not say."""

    def run(self, end_step: EndStep) -> None:
        """Train, call *end_step* at the end of each step, and end if it says so.

        What the trainer had before is restored. It writes nothing meanwhile.
        """


def measure_training(loop: TrainingLoop, measure: Measure) -> None:
    """Measure the steps of *loop*, and end it when all is measured.

    Raises what measuring and training raise, and ``StepError`` if training ended first.
    """
    handover = Handover(measure, loop.batches)
    over = LoopMeasured()
    if not handover.begin():
        # It was refused before its first step.
        handover.end(over)
        return
    steps = _Steps(handover)
    try:
        loop.run(steps.end)
    except BaseException as error:
        if not is_measured(handover, lambda reply: reply(), error, over):
            raise
        return
    name = f"gpuperf.trainer({loop.name})"
    early = partial(ended_early, name, handover.steps, loop.remedy)
    handover.end(over if steps.are_measured else early())


class _Steps:
    def __init__(self, handover: Handover) -> None:
        self.are_measured = False
        self._handover = handover

    def end(self) -> bool:
        if not self.are_measured:
            self.are_measured = not self._handover.next_step()
        return not self.are_measured


@contextmanager
def changed(thing: object, **values: object) -> Iterator[None]:
    """Give *thing* other values of its public attributes until the block ends."""
    before = {name: getattr(thing, name) for name in values}
    try:
        for name, value in values.items():
            setattr(thing, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)
