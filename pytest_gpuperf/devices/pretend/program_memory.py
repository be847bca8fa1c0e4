"""The memory of a program that runs its own loop: a step ends where the optimizer's does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from typing import Final

from torch.optim.optimizer import register_optimizer_step_post_hook

from .call_sites import site_of_caller
from .live_memory import LiveMemory
from .memory_audit import unrecorded
from .memory_audit import watching_memory
from .memory_picture import Picture
from .memory_picture import Role
from .memory_picture import picture_of
from .memory_picture import roles_now
from .predicted_memory import StepMemory
from .predicted_memory import alive_at
from .predicted_memory import step_memories
from .record import Site
from .recorder import current_node


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
        self._expected_peak: int | None = None
        self._roles: dict[int, Role] = {}
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
        if self._expected_peak is not None:
            self._take_picture(self._expected_peak)
        if len(self._ranges) == self._most_steps:
            raise EnoughSteps(0)
        if len(self._ranges) >= STEADY:
            self._look_next()

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return len(self._ranges)

    def memories(self) -> Sequence[StepMemory]:
        """What each step needs; a program without an optimizer is one step."""
        whole = [(0, len(self._live.events))]
        return step_memories(self._live.events, self._ranges or whole)

    def _look_next(self) -> None:
        last = self.memories()[-1]
        if last.peak is None:
            return
        peak = self._first + last.peak - last.first
        self._expected_peak = peak
        self._live.on_birth = partial(self._look, peak)
        self._live.site = partial(_site, self._root)

    def _look(self, peak: int, index: int) -> None:
        if index == peak:
            self._roles = dict(roles_now(self._live))

    def _take_picture(self, expected: int) -> None:
        self._live.on_birth = self._live.site = None
        self._expected_peak = None
        events = self._live.events
        if self.memories()[-1].peak == expected:
            alive = alive_at(events, expected)
            self.picture = picture_of(alive, self._roles, events[expected])


def _site(root: str) -> Site:
    return site_of_caller(root, in_backward=current_node() is not None)


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
