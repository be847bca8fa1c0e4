"""One run of a test by torchrun's ranks, each watched beside a pytest of its own.

Rank 0's watcher gives the order, waits for the others and lets all begin at once. Who
sees a rank fail tells it, and every watcher hands in how its rank ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ..errors import RunError
from ..model.codec import decode
from ..model.codec import encode
from ..model.launch import Launch
from .meeting import Meeting
from .processes import RankEnd


GO: Final = "go"

NO: Final = "no"

LATE_SECONDS: Final = 30.0
"""For a watcher to hand in how its rank ended, beside what the rank may take."""


def order_name(run: int) -> str:
    """Name the text that says what the ranks do in this *run*, counted from 1."""
    return f"order/{run}"


def ready_name(run: int, rank: int) -> str:
    """Name the text by which a *rank* is ready, or says why it never will be."""
    return f"{run}/ready/{rank}"


def locks_name(rank: int) -> str:
    """Name the text that says which locks a *rank* takes."""
    return f"locks/{rank}"


class Party:
    """What the watcher of one rank knows of the others in a run."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._run = 0
        self._met: Meeting | None = None
        self._began = 0.0

    def invite(self, order: str) -> int:
        """Give the *order*, let all begin who are ready; return the number of the run.

        Raises ``RunError`` that names the rank for which it cannot begin.
        """
        self._run = self._meeting.count_up("runs")
        self._meeting.post(order_name(self._run), order)
        until = time.monotonic() + self._launch.patience_s
        why = next(filter(None, map(self._why_not, self._others, _left(until))), "")
        self._meeting.post(f"{self._run}/begin", NO if why else GO)
        if why:
            raise RunError(why)
        self._began = time.monotonic()
        return self._run

    def come(self, run: int, why_not: str) -> int:
        """Be ready for this *run*, or say *why_not*; return its number when it begins.

        Raises ``RunError`` where it does not begin.
        """
        self._run = run
        self._meeting.post(ready_name(run, self._launch.rank), why_not)
        begin = self._meeting.awaited(f"{run}/begin", self._launch.patience_s)
        if begin != GO:
            msg = f"rank {self._launch.rank}: run {run} was called off"
            raise RunError(msg)
        self._began = time.monotonic()
        return run

    def have_failed(self) -> bool:
        """Whether a rank failed that another process watches."""
        return self._meeting.has(f"{self._run}/failed")

    def hear_of_failure(self) -> None:
        """Tell the other watchers that a rank has failed."""
        self._meeting.post(f"{self._run}/failed")

    def hand_in(self, end: RankEnd) -> None:
        """Give rank 0's watcher the *end* of the rank that is watched here."""
        text = json.dumps(encode(self.since_begin(end)))
        self._meeting.post(f"{self._run}/end/{self._launch.rank}", text)

    def ends_of_others(self, own: RankEnd, timeout_s: float) -> list[RankEnd | None]:
        """Return how the other ranks ended, ``None`` where no word of one comes.

        They have *timeout_s* from when all began, but not where rank 0 had its *own* end
        before: those that are left are told then, and killed.
        """
        hurried = own.code != 0 or self.have_failed()
        until = time.monotonic() if hurried else self._began + timeout_s
        left = _left(until + LATE_SECONDS)
        return list(map(self._end_of, self._others, left))

    def since_begin(self, end: RankEnd) -> RankEnd:
        """Count the times of *end* from when all began: machines have other clocks."""
        said = tuple({**said, "at": said["at"] - self._began} for said in end.said)
        return replace(end, said=said, ended_at=end.ended_at - self._began)

    @property
    def _meeting(self) -> Meeting:
        """Where all meet; entered late, as it does not survive a fork."""
        if self._met is None:
            self._met = Meeting(self._launch)
        return self._met

    @property
    def _others(self) -> range:
        return range(1, self._launch.count)

    def _why_not(self, rank: int, seconds: float) -> str:
        """Wait for *rank* and return why it does not take part; nothing if it does."""
        ready = self._meeting.awaited(ready_name(self._run, rank), seconds)
        if ready is not None:
            return f"rank {rank} takes no part: {ready}" if ready else ""
        return f"rank {rank} was not ready in {self._launch.patience_s:g} s"

    def _end_of(self, rank: int, seconds: float) -> RankEnd | None:
        text = self._meeting.awaited(f"{self._run}/end/{rank}", seconds)
        return None if text is None else decode(RankEnd, json.loads(text))


def _left(until: float) -> Iterator[float]:
    while True:
        yield until - time.monotonic()
