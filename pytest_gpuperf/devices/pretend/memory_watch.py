"""Watches the memory of steps, and nothing else of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from typing import Final
from typing import TypeVar
from weakref import WeakSet

import torch

from ...model.finding import MemoryCourse
from ...model.finding import Phase
from ..autograd import current_node
from ..autograd import graphs_alive
from ..memory_owners import owned_tensors
from ..memory_owners import roles_of
from ..memory_picture import Alive
from ..memory_picture import Change
from ..memory_picture import Held
from ..memory_picture import Picture
from ..memory_picture import StorageRole
from ..memory_picture import course_of
from ..memory_picture import held_by_place
from ..memory_picture import picture_of
from ..memory_picture import role_by_birth
from ..preflight import no_garbage_collection
from ..source_lines import Site
from ..source_lines import site_of_caller
from .allocator import rounded
from .audit_record import StepMark
from .backward_rules import ENGINE_ALONE
from .memory import PRETEND_MEMORY
from .memory import LiveMemory
from .memory import MemoryEvent
from .memory import StepMemory
from .memory import alive_at
from .memory import step_memories
from .memory import watched
from .program_steps import ProgramSteps
from .recorder import WATCH
from .tensor import Ghost


# A picture at the peak of a step that is expected to be like the one before.


class Lookout:
    """Records sites from now on, and roles at the peak that *last* leads to expect.

    Lines below the directory *root* are the project's.
    """

    def __init__(self, live: LiveMemory, root: str, last: StepMemory) -> None:
        self._live = live
        self._first = len(live.events)
        self._expected = (
            None if last.peak is None else self._first + last.peak - last.first
        )
        self._roles: Mapping[int, StorageRole] = {}
        self._claimed = dict(self._claims())
        live.on_birth = self._look
        live.site = partial(site_here, root)

    def picture(self, peak: int | None) -> Picture | None:
        """Stop recording, and return what was alive at the event *peak*.

        ``None`` if that is not the expected event: what is alive at another moment
        explains nothing. Blocks are rounded as the allocator rounds them.
        """
        self._live.on_birth = self._live.site = None
        if peak is None or peak != self._expected:
            return None
        events = self._live.events
        births = alive_at(events, peak)
        alive = [self._alive(number, birth) for number, birth in births.items()]
        return replace(
            picture_of(alive, events[peak].op, events[peak].site), course=self._course()
        )

    def _course(self) -> MemoryCourse:
        """Follow the step; owners claim what they have before, at its peak and after."""
        # The peak last: what was an activation there may belong to an owner later.
        claimed = {**self._claimed, **self._claims(), **self._roles}
        events = self._live.events
        before = alive_at(events, self._first - 1) if self._first else {}
        return course_of(
            (_change(birth, claimed) for birth in before.values()),
            (_change(e, claimed) for e in events[self._first :] if not e.empties_cache),
        )

    def _alive(self, number: int, birth: MemoryEvent) -> Alive:
        return Alive(
            nbytes=rounded(birth.nbytes),
            role=self._roles.get(number) or _role_of(birth),
            op=birth.op,
            site=birth.site,
        )

    def _look(self, index: int) -> None:
        if index == self._expected:
            self._roles = self._claims()

    def _claims(self) -> Mapping[int, StorageRole]:
        # The owners' tensors may be of a user's subclass, which must not see these
        # reads.
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
            return roles_of(_claims(self._live))


def site_here(root: str) -> Site:
    """Return the line of code that takes memory now."""
    phase = None if current_node() is None else Phase.BACKWARD
    return site_of_caller(root, phase=phase)


def _claims(live: LiveMemory) -> Iterator[tuple[int, StorageRole]]:
    """Yield the numbers of storages and the roles their owners give them now."""
    for tensor, role in owned_tensors():
        number = live.number_of(tensor.inside) if type(tensor) is Ghost else None
        if number is not None:
            yield number, role


def _change(event: MemoryEvent, claimed: Mapping[int, StorageRole]) -> Change:
    return Change(
        number=event.number,
        nbytes=rounded(event.nbytes) if event.is_birth else 0,
        role=claimed.get(event.number) or _role_of(event),
        phase=event.site.phase if event.site else None,
    )


def _role_of(birth: MemoryEvent) -> StorageRole:
    return StorageRole.WORKSPACES if birth.workspace else role_by_birth(birth.site)


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
        """End the last step of a loop over batches, which no other batch ends."""
        if self._mark is StepMark.LOADER and len(self._ranges) < self._most_steps:
            self._end_step()

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
        whole = [(0, len(self._live.events))]
        return step_memories(self._live.events, self._ranges or whole)

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
