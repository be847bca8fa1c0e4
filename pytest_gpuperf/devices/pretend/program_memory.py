"""The memory of a program that runs its own loop: a step ends where the optimizer's does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any
from typing import Final

from torch.optim.optimizer import register_optimizer_step_post_hook

from ..memory_picture import Picture
from .live_memory import LiveMemory
from .lookout import Lookout
from .memory_audit import unrecorded
from .memory_audit import watching_memory
from .predicted_memory import StepMemory
from .predicted_memory import step_memories


STEADY: Final = 2
"""Step from which on all steps are alike: the first one makes the optimizer's state."""


class EnoughSteps(SystemExit):
    """Ends a program of which no more steps are needed."""


class ProgramMemory:
    """Follows the steps of a program and ends it after *most_steps* of them.

    The last one is looked around in at its peak, if it is like the one before. Lines
    below the directory *root* are the project's.
    """

    def __init__(self, live: LiveMemory, root: str, most_steps: int) -> None:
        self._live = live
        self._root = root
        self._most_steps = most_steps
        self._ranges: list[tuple[int, int]] = []
        self._first = 0
        self._lookout: Lookout | None = None
        self._after_first: Callable[[], object] | None = None
        self.picture: Picture | None = None

    @property
    def live(self) -> LiveMemory:
        """The storages that were watched."""
        return self._live

    def after_first(self, act: Callable[[], object]) -> None:
        """Have *act* called when the first step is over."""
        self._after_first = act

    def cut(self) -> None:
        """End a step here; raise ``EnoughSteps`` after the last."""
        gc.collect()
        self._ranges.append((self._first, len(self._live.events)))
        self._first = len(self._live.events)
        if self._after_first is not None:
            self._after_first()
            self._after_first = None
        if self._lookout is not None:
            peak = self.memories()[-1].peak
            self.picture = self._lookout.picture(peak) or self.picture
        if len(self._ranges) == self._most_steps:
            raise EnoughSteps(0)
        if len(self._ranges) >= STEADY:
            self._lookout = Lookout(self._live, self._root, self.memories()[-1])

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return len(self._ranges)

    def memories(self) -> Sequence[StepMemory]:
        """What each step needs; a program without an optimizer is one step."""
        whole = [(0, len(self._live.events))]
        return step_memories(self._live.events, self._ranges or whole)


@contextmanager
def watching_program(root: str, most_steps: int) -> Iterator[ProgramMemory]:
    """Follow the memory of whatever runs inside, on the pretend GPU."""
    with unrecorded(), watching_memory(from_now=True) as audit:
        memory = ProgramMemory(audit.live, root, most_steps)

        def cut(*_: Any) -> None:
            memory.cut()

        handle = register_optimizer_step_post_hook(cut)
        try:
            yield memory
        finally:
            handle.remove()
