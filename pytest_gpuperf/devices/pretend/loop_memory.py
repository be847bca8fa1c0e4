"""The memory of a program in which nothing of torch marks a step: turns of its loop do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from ...model.finding import Location
from ..memory_picture import Picture
from ..memory_picture import StorageRole
from .memory import LiveMemory
from .memory import step_memories
from .program_audit import LoopTurns
from .step_picture import claims_now
from .step_picture import picture_at
from .step_picture import site_here


ASKED_AGAIN: Final = 1.25
"""Owners are asked when memory has grown by this factor: each time takes a look at all
objects, and what they own may be gone at the program's end."""


class LoopMemory:
    """Notes lines and owners from the first operation on, and where a loop turns.

    Lines below the directory *root* are the project's. *turned* is called where a turn of
    any loop is over; what it frees belongs to that turn.
    """

    def __init__(self, live: LiveMemory, root: str, turned: Callable[[], None]) -> None:
        self._live = live
        self._turns = LoopTurns(root)
        self._turned = turned
        self._begun: dict[int, int] = {}
        self._claimed: dict[int, StorageRole] = {}
        self._claimed_at = 0
        live.site = partial(site_here, root)
        live.before_birth = self._look

    def close(self) -> None:
        """Note nothing more, and forget the lines: what is there now is taken once."""
        self._live.site = self._live.before_birth = None
        events = self._live.events
        events[:] = [event._replace(site=None) for event in events]

    @property
    def place(self) -> Location | None:
        """A line of the loop; ``None`` if nothing repeats."""
        return self._turns.place

    def ranges(self) -> list[tuple[int, int]]:
        """Return the events of each turn; what comes before the loop is in the first."""
        starts = (self._begun.get(start, start) for start in self._turns.starts)
        return list(pairwise((0, *starts, len(self._live.events))))

    def picture(self) -> Picture | None:
        """Return what is alive at the peak of all; without a loop, from where all of it is."""
        self._claim()
        events = self._live.events
        memories = step_memories(events, self.ranges())
        # The last of equals: the first turn comes with what is before it.
        most = max(reversed(memories), key=lambda turn: turn.allocated_bytes)
        if most.peak is None:
            return None
        # What is there before the turn is no memory that its lines take.
        before = [event._replace(site=None) for event in events[: most.first]]
        seen = [*before, *events[most.first :]]
        return picture_at(seen, most.first, most.peak, self._claimed, self._claimed)

    def _look(self) -> None:
        at = len(self._live.events)
        turn = self._turns.look(at)
        if turn == 1 or self._live.now_bytes > ASKED_AGAIN * self._claimed_at:
            self._claim()
        if turn:
            self._turned()
            self._begun[at] = len(self._live.events)

    def _claim(self) -> None:
        self._claimed.update(claims_now(self._live))
        self._claimed_at = self._live.now_bytes
