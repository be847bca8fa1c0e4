"""Runs jobs side by side: one process per device at a time, and the next one gets ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ..errors import RunError
from ..model.environment import DeviceSlot
from .fork_server import Ended, Job
from .reservation import Turns


SHORT_SECONDS: Final = 0.02
"""Between two tries at a device that somebody else has."""

LONG_SECONDS: Final = 5.0
"""Longest wait for a job's end if nothing else can be done but show progress."""

Key = TypeVar("Key")


class ProcessServer(Protocol):
    """Starts processes and tells which have ended."""

    def start(self, job: Job, seconds: float) -> int: ...
    def ended(self, seconds: float) -> Ended | None: ...


def assigned(
    keys: Sequence[Key],
    slots: Sequence[DeviceSlot],
    board_of: Callable[[Key], str | None],
) -> dict[Key, int]:
    """Give each of *keys* the number of a slot, for good.

    Two GPUs of one model differ by several percent: what has a baseline goes to the
    board that it was recorded on, the rest to whoever has least to do.
    """
    boards = {slot.board: number for number, slot in enumerate(slots) if slot.board}
    named = {key: board_of(key) for key in keys}
    found = {key: boards[board] for key, board in named.items() if board in boards}
    load = [list(found.values()).count(number) for number in range(len(slots))]
    for key in keys:
        if key not in found:
            found[key] = load.index(min(load))
            load[found[key]] += 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJob:
    """What to run, for how long at most, and on which slots: mostly one.

    Slots are taken in the order given.
    """

    job: Job
    seconds: float
    slots: tuple[int, ...]


class JobWatch(Protocol):
    """Is called for each job, by its number: before it starts, and when it has ended.

    If nothing happens for a while it is called to say so.
    """

    def started(self, index: int) -> None: ...
    def ended(self, index: int, answer: Any) -> None: ...
    def waiting(self) -> None: ...


class SideBySide:
    """Runs jobs, one per slot at a time; *turns* has one queue place for each slot."""

    def __init__(
        self,
        server: ProcessServer,
        turns: Sequence[Turns],
        pause: Callable[[float], None] = time.sleep,
        watch: JobWatch | None = None,
    ) -> None:
        self._server = server
        self._watch = watch
        self._turns = turns
        self._pause = pause
        self._held: set[int] = set()
        self._waiting: list[int] = []
        self._running: dict[int, int] = {}

    def run(self, jobs: Sequence[SlotJob]) -> list[Any]:
        """Return what each job returned, or the ``RunError`` it ended with.

        Raises ``UsageError`` if a device does not come free.
        """
        answers: list[Any] = [None] * len(jobs)
        self._waiting = list(range(len(jobs)))
        try:
            while self._waiting or self._running:
                for index, answer in (*self._start(jobs), *self._ended(jobs)):
                    self._give_back(jobs[index].slots)
                    answers[index] = answer
                    if self._watch is not None:
                        self._watch.ended(index, answer)
        finally:
            # A refused device or an interrupt ends the loop with jobs under way: their
            # slots must not stay locked for other processes.
            self._give_back(tuple(self._held))
        return answers

    def _start(self, jobs: Sequence[SlotJob]) -> Iterator[tuple[int, Any]]:
        """Start what has its slots; yield what cannot be started.

        A job waits for those before it that want one of its slots.
        """
        wanted = self._busy(jobs)
        for index in list(self._waiting):
            slots = jobs[index].slots
            if wanted.isdisjoint(slots) and all(map(self._take, slots)):
                self._waiting.remove(index)
                if self._watch is not None:
                    self._watch.started(index)
                try:
                    job = jobs[index]
                    self._running[self._server.start(job.job, job.seconds)] = index
                except RunError as error:
                    yield index, error
            # Also for a job that did not start: one for all slots would otherwise
            # starve, because small jobs would always take one of them first.
            wanted.update(slots)
            if len(wanted) == len(self._turns):
                return

    def _busy(self, jobs: Sequence[SlotJob]) -> set[int]:
        return {slot for index in self._running.values() for slot in jobs[index].slots}

    def _take(self, slot: int) -> bool:
        if slot not in self._held and self._turns[slot].take():
            self._held.add(slot)
        return slot in self._held

    def _ended(self, jobs: Sequence[SlotJob]) -> Iterator[tuple[int, Any]]:
        """Wait for a job to end, but not if a slot may come free before."""
        if not self._running:
            self._pause(SHORT_SECONDS if self._waiting else 0)
            return
        busy = self._busy(jobs)
        free = any(busy.isdisjoint(jobs[index].slots) for index in self._waiting)
        # The lock of another process cannot be waited for together with a pipe, so a
        # free slot means polling.
        ended = self._server.ended(SHORT_SECONDS if free else LONG_SECONDS)
        if ended is None:
            if self._watch is not None and not free:
                self._watch.waiting()
            return
        job, answer = ended
        yield self._running.pop(job), answer

    def _give_back(self, slots: Sequence[int]) -> None:
        for slot in self._held.intersection(slots):
            self._turns[slot].give_back()
            self._held.discard(slot)
