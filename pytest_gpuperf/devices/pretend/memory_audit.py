"""Steps of which nothing but the memory is watched."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final
from typing import TypeVar

from ..garbage import no_garbage_collection
from ..memory_picture import Picture
from .ghost import Ghost
from .live_memory import MEMORY
from .live_memory import LiveMemory
from .live_memory import MemoryEvent
from .live_memory import watched
from .lookout import Lookout
from .predicted_memory import StepMemory
from .predicted_memory import step_memories
from .recorder import WATCH


T = TypeVar("T")

WORKSPACE_BYTES: Final = 32 * 2**20
"""The workspace of cuBLAS, one a thread and stream: 4096 times 8 KiB on GPUs of compute
capability 9.0, which the pretend GPU says it is (CUDABlas.cpp of torch 2.13, and NVIDIA's
cuBLAS documentation on Hopper). GPUs before it take 8.125 MiB."""


class MemoryAudit:
    """What a few steps, one after the other, do to the memory of the pretend GPU."""

    def __init__(self, live: LiveMemory) -> None:
        self.live = live
        self._steps: list[tuple[int, int]] = []

    @property
    def events(self) -> Sequence[MemoryEvent]:
        """Everything seen so far, in the steps and between them."""
        return self.live.events

    def step(self, run: Callable[[], object]) -> None:
        """Run one step, of which nothing else is recorded: both would cost too much.

        What it returns is let go, as a loop would; what only the garbage collector can
        free is freed after it.
        """
        with unrecorded():
            self.recorded_step(partial(_let_go, run))

    def recorded_step(self, run: Callable[[], T]) -> T:
        """Run one step as any other, and return what it returns."""
        first = len(self.live.events)
        result = run()
        gc.collect()
        self._steps.append((first, len(self.live.events)))
        return result

    def explained_step(self, run: Callable[[], object], root: str) -> Picture | None:
        """Run one more step, which is like the last, and look around at its peak.

        ``None`` where it is unlike: what is alive at another moment explains nothing.
        Lines below the directory *root* are the project's.
        """
        lookout = Lookout(self.live, root, self.memories()[-1])
        self.step(run)
        return lookout.picture(self.memories()[-1].peak)

    def memories(self) -> tuple[StepMemory, ...]:
        """What each step needs, by the simulated allocator."""
        return step_memories(self.live.events, self._steps)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Record nothing inside but what is watched."""
    recorders = list(WATCH.recorders)
    WATCH.recorders.clear()
    try:
        yield
    finally:
        WATCH.recorders[:] = recorders


def _let_go(run: Callable[[], object]) -> None:
    run()


@contextmanager
def watching_memory(
    workspace_bytes: int = WORKSPACE_BYTES,
    *,
    from_now: bool = False,
    limited: bool = False,
) -> Iterator[MemoryAudit]:
    """Watch the memory of the pretend GPU.

    What is alive already counts, unless only what comes *from_now* on is to. If it is
    *limited*, who wants more than there is gets ``torch.OutOfMemoryError``.
    """
    room = MEMORY.room if limited else None
    live = LiveMemory(workspace_bytes=workspace_bytes, room=room)
    with no_garbage_collection(), watched(live, None if from_now else Ghost):
        WATCH.told_of_unjudged.append(live.leave_unjudged)
        try:
            yield MemoryAudit(live)
        finally:
            WATCH.told_of_unjudged.remove(live.leave_unjudged)
