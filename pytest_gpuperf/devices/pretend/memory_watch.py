"""Watches the memory of steps, and nothing else of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from typing import Final
from typing import TypeVar
from weakref import WeakSet

import torch

from ...model.finding import Location
from ..autograd import graphs_alive
from ..memory_picture import Held
from ..memory_picture import Picture
from ..memory_picture import held_by_place
from ..preflight import no_garbage_collection
from .allocator import rounded
from .audit_record import StepMark
from .backward_rules import ENGINE_ALONE
from .loop_memory import LoopMemory
from .memory import PRETEND_MEMORY
from .memory import LiveMemory
from .memory import MemoryEvent
from .memory import StepMemory
from .memory import alive_at
from .memory import step_memories
from .memory import watched
from .program_steps import ProgramSteps
from .recorder import WATCH
from .step_picture import Lookout
from .step_picture import site_here
from .tensor import Ghost


T = TypeVar("T")

WORKSPACE_BYTES: Final = 32 * 2**20
"""The workspace of cuBLAS, one a thread and stream: 4096 times 8 KiB on GPUs of compute
capability 9.0, which the pretend GPU says it is (CUDABlas.cpp of torch 2.13, and NVIDIA's
cuBLAS documentation on Hopper). GPUs before it take 8.125 MiB."""


class MemoryAudit:
    """What a few steps, one after the other, do to the memory of the pretend GPU.

    ``graphs`` counts after each the tensors alive that keep an autograd graph.
    """

    def __init__(self, live: LiveMemory) -> None:
        self.live = live
        self._steps: list[tuple[int, int]] = []
        self.graphs: list[int] = []

    @property
    def events(self) -> Sequence[MemoryEvent]:
        """Everything seen so far, in the steps and between them."""
        return self.live.events

    def step(self, run: Callable[[], object]) -> None:
        """Run one step and record only its memory: to record both would cost too much.

        Its result is dropped, as in a training loop. What only the garbage collector
        can free is freed after it.
        """
        with unrecorded():
            self.recorded_step(partial(_drop_result, run))

    def recorded_step(self, run: Callable[[], T]) -> T:
        """Run one step as any other, and return what it returns."""
        first = len(self.live.events)
        result = run()
        gc.collect()
        # After the collection, so that cycles of the step are freed within it and at
        # the same event in every run.
        self._steps.append((first, len(self.live.events)))
        self.graphs.append(graphs_alive())
        return result

    def explained_step(self, run: Callable[[], object], root: str) -> Picture | None:
        """Run one more step, which is like the last, and look around at its peak.

        ``None`` if it is not alike: what is alive at another moment explains nothing.
        Lines below the directory *root* are the project's.
        """
        lookout = Lookout(self.live, root, self.memories()[-1])
        self.step(run)
        return lookout.picture(self.memories()[-1].peak)

    def left_by_step(
        self, steps: Iterator[Callable[[], object]], root: str
    ) -> tuple[Held, ...]:
        """Run two of *steps* and return what the first took that is alive after both.

        Lines below the directory *root* are the project's.
        """
        first = len(self.live.events)
        self.live.site = partial(site_here, root)
        self.step(next(steps))
        self.live.site = None
        last = len(self.live.events)
        self.step(next(steps))
        alive = alive_at(self.live.events, len(self.live.events) - 1)
        return held_by_place(
            (rounded(event.nbytes), event.op, event.site)
            for event in self.live.events[first:last]
            if event.number in alive and event.is_birth and event.site is not None
        )

    def memories(self) -> tuple[StepMemory, ...]:
        """What each step needs, by the simulated allocator."""
        return step_memories(self.live.events, self._steps)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Switch all recorders off inside; a watch on the memory goes on."""
    recorders = list(WATCH.recorders)
    WATCH.recorders.clear()
    try:
        yield
    finally:
        WATCH.recorders[:] = recorders


def _drop_result(run: Callable[[], object]) -> None:
    run()


@contextmanager
def watching_memory(
    workspace_bytes: int = WORKSPACE_BYTES,
    *,
    from_now: bool = False,
    limited: bool = False,
) -> Iterator[MemoryAudit]:
    """Watch the memory of the pretend GPU.

    What is alive already counts, except with *from_now*. If the memory is *limited*, an
    allocation that does not fit raises ``torch.OutOfMemoryError``.
    """
    room = PRETEND_MEMORY.room if limited else None
    live = LiveMemory(workspace_bytes=workspace_bytes, room=room)
    with unrecorded(), watched(LiveMemory(), None):
        ENGINE_ALONE.count()
    with no_garbage_collection(), watched(live, None if from_now else Ghost):
        WATCH.unjudged_listeners.append(live.leave_unjudged)
        try:
            yield MemoryAudit(live)
        finally:
            WATCH.unjudged_listeners.remove(live.leave_unjudged)


# The memory of a program that runs its own loop.

STEADY_WATCHED_STEPS: Final = 2
"""Step from which on all steps are alike: the first one makes the optimizer's state."""


class EnoughSteps(SystemExit):
    """Ends a program of which no more steps are needed."""


class ProgramMemory:
    """Follows the steps of a program and ends it after *most_steps* of them.

    The last one is pictured at its peak, if it is like the one before. Lines below the
    directory *root* are the project's.
    """

    def __init__(self, live: LiveMemory, root: str, most_steps: int) -> None:
        self._live = live
        self._root = root
        self._most_steps = most_steps
        self._ranges: list[tuple[int, int]] = []
        self._mark: StepMark | None = None
        self._lookout: Lookout | None = None
        self._loop = LoopMemory(live, root)
        self._optimizers: WeakSet[Any] = WeakSet()
        self.picture: Picture | None = None

    @property
    def live(self) -> LiveMemory:
        """The storages that were watched."""
        return self._live

    def begin(self, mark: StepMark, number: int) -> None:
        """End a step where *mark* begins another one; raise ``EnoughSteps`` after the last."""
        if mark is StepMark.REPLAY:
            return  # takes no memory: what it uses was taken by the capture
        if mark is not StepMark.OPTIMIZER and self._has_optimizer():
            # It will step: what comes before, such as micro-batches, is a part of that.
            return
        if self._mark is None:
            self._loop.close()
        if number == 1:
            self._forget()
        self._mark = mark
        self._end_step()
        if len(self._ranges) == self._most_steps:
            # We are called inside the user's loop: only an exception that no program
            # catches by accident can end that, and a SystemExit ends it without a
            # traceback.
            raise EnoughSteps(0)
        if len(self._ranges) >= STEADY_WATCHED_STEPS:
            self._lookout = Lookout(self._live, self._root, self.memories()[-1])

    def end(self) -> None:
        """End the last step of a loop, which nothing else ends."""
        if self._mark is None:
            self._mark = StepMark.LOOP if self.loop else None
            self._ranges = self._loop.ranges()
            self.picture = self._loop.picture()
            self._loop.close()
        elif self._mark is StepMark.LOADER and len(self._ranges) < self._most_steps:
            self._end_step()

    @property
    def loop(self) -> Location | None:
        """A line of the loop whose turns are the steps, if nothing else ends them."""
        return self._loop.place if self._mark in {None, StepMark.LOOP} else None

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return len(self._ranges)

    @property
    def mark(self) -> StepMark | None:
        """What has ended them."""
        return self._mark

    def memories(self) -> Sequence[StepMemory]:
        """What each step needs; a program without any is one step."""
        return step_memories(self._live.events, self._ranges)

    def _forget(self) -> None:
        """Make what was so far a part of the first step."""
        self._ranges.clear()
        self._picture_step(None)

    def _end_step(self) -> None:
        gc.collect()
        first = self._ranges[-1][1] if self._ranges else 0
        self._ranges.append((first, len(self._live.events)))
        self._picture_step(self.memories()[-1].peak)

    def _picture_step(self, peak: int | None) -> None:
        if self._lookout is not None:
            self.picture = self._lookout.picture(peak) or self.picture
            self._lookout = None

    def _has_optimizer(self) -> bool:
        """Whether the program has an optimizer, alive, that has yet to step."""
        if not self._optimizers:
            # Not isinstance: it would run ``__class__`` of proxies.
            kind = torch.optim.Optimizer
            found = (o for o in gc.get_objects() if issubclass(type(o), kind))
            self._optimizers.update(found)
        return bool(self._optimizers)


@contextmanager
def watching_program(root: str, most_steps: int) -> Iterator[ProgramMemory]:
    """Follow the memory of whatever runs inside, on the pretend GPU."""
    with unrecorded(), watching_memory(from_now=True) as audit:
        memory = ProgramMemory(audit.live, root, most_steps)
        steps = ProgramSteps(root, memory.begin)
        try:
            yield memory
        finally:
            steps.close()
