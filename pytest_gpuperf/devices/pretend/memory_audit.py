"""Steps of which nothing but the memory is watched."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Final

from ..garbage import no_garbage_collection
from .ghost import Ghost
from .live_memory import LiveMemory
from .live_memory import MemoryEvent
from .live_memory import watched
from .predicted_memory import StepMemory
from .predicted_memory import step_memories
from .recorder import WATCH


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
        """Run one step; what it returns is let go, as a loop would.

        What only the garbage collector can free is freed after the step.
        """
        first = len(self.live.events)
        run()
        gc.collect()
        self._steps.append((first, len(self.live.events)))

    def memories(self) -> tuple[StepMemory, ...]:
        """What each step needs, by the simulated allocator."""
        return step_memories(self.live.events, self._steps)


@contextmanager
def watching_memory(
    workspace_bytes: int = WORKSPACE_BYTES, *, from_now: bool = False
) -> Iterator[MemoryAudit]:
    """Watch memory and record nothing else: both at once would cost too much.

    What is alive already counts, unless only what comes *from_now* on is to.
    """
    recorders = list(WATCH.recorders)
    live = LiveMemory(workspace_bytes=workspace_bytes)
    with no_garbage_collection(), watched(live, None if from_now else Ghost):
        WATCH.recorders.clear()
        try:
            yield MemoryAudit(live)
        finally:
            WATCH.recorders[:] = recorders
