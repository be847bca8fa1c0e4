"""Measures the steps of a trainer: an adapter runs it and says where its steps end.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

from ..devices.base import Fetch, TimedFetch
from ..devices.process_time import HostClock
from ..measure.step import MOST_TOGETHER, Fetched
from .handover import Handover, LoopMeasured, Measure, ended_early, is_measured


# How long a loop waits for its batches, by what its framework says of them.


class StepBatches:
    """Counts the waits for a loop's batches: one wait per step, however many batches.

    The framework says when it begins to fetch, and when it has what it fetched. What is
    between the end of an epoch and the first step of the next counts as an opening.
    """

    def __init__(self, now_ns: Callable[[], int] = HostClock.wall_ns) -> None:
        self.fetched = Fetched()
        self.openings_ns: list[int] = []
        self.together = 1
        self.workers_anew = 0
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._waited_ns = 0
        self._is_opening = True

    def has_workers(self, number: object, *, kept: object) -> None:
        """Batches arrive in bursts of *number*, as many workers, *kept* for all epochs."""
        if isinstance(number, int):
            self.together = max(1, min(number, MOST_TOGETHER))
            self.workers_anew = 0 if kept else number

    def epoch(self) -> None:
        """An epoch begins: workers start, and its first batch is waited for."""
        self._is_opening = True

    def fetch(self) -> None:
        """The loop asks for a batch from now on."""
        self._since_ns = self._now_ns()

    def came(self) -> None:
        """The batch is there."""
        self._waited_ns += self._now_ns() - self._since_ns

    def step(self) -> None:
        """A step ends: count what it waited."""
        batches, waited_ns, opening_ns = self.fetched
        if self._is_opening:
            self.openings_ns.append(self._waited_ns)
            self.fetched = Fetched(batches, waited_ns, opening_ns + self._waited_ns)
        else:
            self.fetched = Fetched(batches + 1, waited_ns + self._waited_ns, opening_ns)
        self._waited_ns, self._is_opening = 0, False

    def time_with(self, timed: Callable[[Fetch], TimedFetch]) -> None:
        """Leave *timed* alone: the framework fetches, so the host's clock is read."""

    def close(self) -> None:
        """Do nothing: the loader is the framework's."""


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


# Loops of which nothing is known but that torch's optimizers make their steps.
#
# Their steps end where the first optimizer has made a step, which torch itself tells
# those that ask for it (``register_optimizer_step_post_hook``). So accelerate's loops are
# measured, which their users write, and trainers such as torchtitan's.


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
