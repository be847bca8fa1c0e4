"""Which device takes which tests, and one process a device at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final
from typing import Protocol
from typing import TypeVar

from ..errors import RunError
from ..model.seat import Seat
from ..sharing.reservation import Turns
from .fork_server import Ended
from .fork_server import Job


SHORT_SECONDS: Final = 0.02
"""Between two tries at a device that somebody else has."""

LONG_SECONDS: Final = 3600.0
"""Where there is nothing to do until a job ends: each has its own time limit."""

Key = TypeVar("Key")


class Server(Protocol):
    """Starts processes and tells which have ended."""

    def start(self, job: Job, seconds: float) -> int: ...
    def ended(self, seconds: float) -> Ended | None: ...


def assigned(
    keys: Sequence[Key], seats: Sequence[Seat], board_of: Callable[[Key], str | None]
) -> dict[Key, int]:
    """Give each of *keys* the number of a seat, for good.

    Two GPUs of one model differ by several percent: what has a baseline goes to the
    board that it was recorded on, the rest to whoever has least to do.
    """
    boards = {seat.board: number for number, seat in enumerate(seats) if seat.board}
    named = {key: board_of(key) for key in keys}
    found = {key: boards[board] for key, board in named.items() if board in boards}
    load = [list(found.values()).count(number) for number in range(len(seats))]
    for key in keys:
        if key not in found:
            found[key] = load.index(min(load))
            load[found[key]] += 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedJob:
    """What to run, for how long at most, and on which seats: mostly one.

    They are taken in the order that they stand in.
    """

    job: Job
    seconds: float
    seats: tuple[int, ...]


class Watch(Protocol):
    """Is told of each job, by its number: before it is started, and when it ended."""

    def started(self, index: int) -> None: ...
    def ended(self, index: int) -> None: ...


class SideBySide:
    """Runs jobs, one a seat at a time; *turns* holds one place in a queue a seat."""

    def __init__(
        self,
        server: Server,
        turns: Sequence[Turns],
        pause: Callable[[float], None] = time.sleep,
        watch: Watch | None = None,
    ) -> None:
        self._server = server
        self._watch = watch
        self._turns = turns
        self._pause = pause
        self._held: set[int] = set()
        self._waiting: list[int] = []
        self._running: dict[int, int] = {}

    def run(self, jobs: Sequence[SeatedJob]) -> list[Any]:
        """Return what each job returned, or the ``RunError`` it ended with.

        Raises ``UsageError`` where a device does not come free.
        """
        answers: list[Any] = [None] * len(jobs)
        self._waiting = list(range(len(jobs)))
        try:
            while self._waiting or self._running:
                for index, answer in (*self._start(jobs), *self._ended(jobs)):
                    self._give_back(jobs[index].seats)
                    answers[index] = answer
                    if self._watch is not None:
                        self._watch.ended(index)
        finally:
            self._give_back(tuple(self._held))
        return answers

    def _start(self, jobs: Sequence[SeatedJob]) -> Iterator[tuple[int, RunError]]:
        """Start what has its seats; yield what cannot be started.

        A job waits for those before it that want one of its seats.
        """
        wanted = self._busy(jobs)
        for index in list(self._waiting):
            seats = jobs[index].seats
            if wanted.isdisjoint(seats) and all(map(self._take, seats)):
                self._waiting.remove(index)
                if self._watch is not None:
                    self._watch.started(index)
                try:
                    number = self._server.start(jobs[index].job, jobs[index].seconds)
                    self._running[number] = index
                except RunError as error:
                    yield index, error
            wanted.update(seats)
            if len(wanted) == len(self._turns):
                return

    def _busy(self, jobs: Sequence[SeatedJob]) -> set[int]:
        return {seat for index in self._running.values() for seat in jobs[index].seats}

    def _take(self, seat: int) -> bool:
        if seat not in self._held and self._turns[seat].take():
            self._held.add(seat)
        return seat in self._held

    def _ended(self, jobs: Sequence[SeatedJob]) -> Iterator[tuple[int, Any]]:
        """Wait for a job to end, but not where a seat may come free before."""
        if not self._running:
            self._pause(SHORT_SECONDS if self._waiting else 0)
            return
        busy = self._busy(jobs)
        free = any(busy.isdisjoint(jobs[index].seats) for index in self._waiting)
        ended = self._server.ended(SHORT_SECONDS if free else LONG_SECONDS)
        if ended is not None:
            yield self._running.pop(ended.job), ended.answer

    def _give_back(self, seats: Sequence[int]) -> None:
        for seat in self._held.intersection(seats):
            self._turns[seat].give_back()
            self._held.discard(seat)
