"""Measures the steps of a loop that cannot be called step by step.

What measures calls one step after the other: warm-up, rounds, memory, profile. A loop
that somebody else runs, such as ``trainer.train()``, calls us at the end of each step
instead. Neither can be left in the middle, so they have a thread each, and one of them
always waits for the other:

    the loop, on the thread of the test       what measures, on a thread of ours
    -----------------------------------       ----------------------------------
    waits in ``next_step``  <------------------ ``subject.step()`` asks for a step
    runs one step
    ``next_step`` again     ------------------> ``subject.step()`` returns

The loop has the thread of the test, because ``with gpuperf.steps()`` cannot move the
block to another, and because trainers set signal handlers and torch's modes on the thread
that they find. What a device has to do on that thread (dispatch modes, profilers,
``sys.settrace``) it asks ``devices/step_thread`` for: the thread does it while it waits
at the end of a step. Two other ways were left alone: generators would turn every phase of
``measure/`` and each device inside out, and greenlets are a package that nobody has.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Protocol

from ..devices.base import Fetch, TimedFetch
from ..devices.process_time import HostClock
from ..devices.step_thread import STEPS
from ..errors import ErrorId, StepError
from ..measure.step import MOST_TOGETHER, Fetched, FetchTimes, Subject


Measure = Callable[[Subject], object]
"""Measures a step and returns what the last call of it returned."""

Guard = Callable[[Callable[[], object]], object]
"""Calls what may refuse to measure, and fails the test with what it says."""


class LoopMeasured(BaseException):
    """Ends a loop of which no more steps are needed.

    No ``Exception``: a loop that goes on after errors must not go on after this.
    """


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a step or a call: a value, or the error that it raised."""

    value: object = None
    error: BaseException | None = None

    @classmethod
    def of(cls, act: Callable[[], object]) -> Reply:
        """Call *act*. An error belongs to the thread that asked, whatever it is."""
        try:
            return cls(act())
        except BaseException as error:  # noqa: BLE001
            return cls(error=error)

    def given(self) -> object:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


def another_step() -> None:
    """What is asked of the loop where nothing is to be called: to run its next step."""


class Handover:
    """Lets *measure* call the steps of a loop that runs on the thread that makes this.

    ``steps`` are those that the loop has ended.
    """

    def __init__(self, measure: Measure, batches: FetchTimes | None = None) -> None:
        self.ident = threading.get_ident()
        self.native_id = threading.get_native_id()
        self.steps = 0
        # To change threads takes 80 us, so a round changes them once for all its steps.
        self._subject = Subject(step=self.step, batches=batches, takes_a_number=True)
        self._left = 0
        self._asked: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        self._is_stepping = False
        self._measured = Reply()
        self._thread = threading.Thread(
            target=self._measure,
            args=(measure, _gpu_of_this_thread()),
            name="gpuperf",
            # A loop that is killed must not leave a process that waits for it.
            daemon=True,
        )

    # On the thread of the loop.

    def begin(self) -> bool:
        """Start to measure; return whether a first step is wanted."""
        self._thread.start()
        return self._wanted()

    def next_step(self) -> bool:
        """End a step here; return whether another one is wanted."""
        self.steps += 1
        if self._left > 0:
            self._left -= 1
            return True
        self._is_stepping = False
        self._replies.put(Reply())
        return self._wanted()

    def end(self, error: BaseException) -> object:
        """Return what was measured of a loop that has ended, with *error* in it if not.

        Raises what measuring has raised: *error*, if the loop ended too early.
        """
        if self._thread.ident is None:
            raise error
        if self._is_stepping:
            self._replies.put(Reply(error=error))
        # Whoever survives the error and asks for one more step gets it again.
        while self._thread.is_alive() and self._wanted():
            self._replies.put(Reply(error=error))
        self._is_stepping = False
        self._thread.join()
        return self._measured.given()

    def _wanted(self) -> bool:
        """Do what is asked for; return whether that is a step, and not the end."""
        while (act := self._asked.get()) is not None:
            if act is another_step:
                self._is_stepping = True
                return True
            self._replies.put(Reply.of(act))
        self._asked.put(None)
        return False

    # On the thread that measures.

    def call(self, act: Callable[[], object]) -> object:
        """Call *act* on the thread of the loop, between two steps."""
        if threading.get_ident() != self._thread.ident:
            return act()
        self._asked.put(act)
        return self._replies.get().given()

    def step(self, steps: int = 1) -> object:
        """Let the loop run its next *steps*."""
        self._left = steps - 1
        self._asked.put(another_step)
        return self._replies.get().given()

    def _measure(self, measure: Measure, gpu: Callable[[], object]) -> None:
        try:
            with STEPS.lent(self):
                gpu()
                self._measured = Reply.of(partial(measure, self._subject))
        finally:
            self._asked.put(None)


def _gpu_of_this_thread() -> Callable[[], object]:
    """Return what makes this thread's GPU and stream those of another thread."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return lambda: None
    stream = torch.cuda.current_stream()
    return partial(torch.cuda.set_stream, stream)


# A loop in the test itself, which says where each of its steps ends.

TOO_EARLY: Final = (
    "{loop}: it ended after {steps} step{s}, and measuring takes more: {remedy}"
)

ENDLESS: Final = (
    "let the loop go on until step() ends it, as `while True` or itertools.cycle do"
)


def ended_early(loop: str, steps: int, remedy: str) -> StepError:
    """Return the error of a *loop* that ended before all was measured."""
    msg = TOO_EARLY.format(
        loop=loop, steps=steps, s="" if steps == 1 else "s", remedy=remedy
    )
    return StepError(msg, ErrorId.GP311)


class Steps(AbstractContextManager[Callable[[], None]]):
    """The block of ``with gpuperf.steps() as step:``.

    ``step()`` ends a step. When all is measured it leaves the block. What measuring
    raises is raised by *guard*, which is on the thread of the test.
    """

    def __init__(self, measure: Measure, guard: Guard) -> None:
        self._handover = Handover(measure)
        self._guard = guard
        self._measured = LoopMeasured()

    def __enter__(self) -> Callable[[], None]:
        if not self._handover.begin():
            # It was refused before its first step.
            self._guard(partial(self._handover.end, self._measured))
        return self._step

    def _step(self) -> None:
        if not self._handover.next_step():
            raise self._measured

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        __tracebackhide__ = True
        if error is None:
            steps = self._handover.steps
            error = ended_early("gpuperf.steps()", steps, ENDLESS)
            self._guard(partial(self._handover.end, error))
            return False
        return is_measured(self._handover, self._guard, error, self._measured)


def is_measured(
    handover: Handover, guard: Guard, error: BaseException, measured: LoopMeasured
) -> bool:
    """Whether a loop that ended with *error* did so because all was *measured*.

    Raises what measuring has raised, if that is another error.
    """
    __tracebackhide__ = True
    trace = error.__traceback__
    reply = Reply.of(partial(handover.end, error))
    if reply.error is not None and reply.error is not error:
        guard(reply.given)
    # It was raised on the other thread as well, whose frames say nothing to the user.
    error.__traceback__ = trace
    return error is measured


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
