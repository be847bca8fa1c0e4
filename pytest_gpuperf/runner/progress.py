"""The progress of a run: which test, how many of how many, and for how long.

It is shown when a process starts, when a step arrives to be measured, between the parts
of its warm-up and its rounds (at most once a second), and when nothing has happened for
some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..report.screen.summary import duration, progress_text
from .screening import Group


class Progress:
    """Counts the tests and the time, and passes them in a line to *show*."""

    def __init__(
        self,
        show: Callable[[str], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._now = now
        self._start = now()
        self._groups: Sequence[Group] = ()
        self._left: set[int] = set()
        self._number: int | None = None
        self._done_before = 0
        self._total: int | None = None
        self._last = ("", "")

    def among(self, done: int, total: int | None) -> None:
        """Say of what begins next that so many of *total* tests are *done* before it."""
        self._done_before, self._total = done, total

    def begin(self, groups: Sequence[Group], number: int | None) -> None:
        """Follow run *number* of *groups*; one without a number traces."""
        self._groups, self._number = groups, number
        self._left = set(range(len(groups)))

    def started(self, index: int) -> None:
        """Say that the group with this *index* is next."""
        self._tell(self._groups[index][0])

    def arrived(self, call: str, doing: str = "") -> None:
        """Say that a step is there to be measured: its fixtures are set up."""
        self._tell(call, doing)

    def waiting(self) -> None:
        """Say again what is done, as nothing new was heard for a while."""
        self._tell(*self._last)

    def ended(self, index: int) -> None:
        """Count the group with this *index* as done."""
        self._left.discard(index)

    def _tell(self, test: str, part: str = "") -> None:
        self._last = (test, part)
        if self._show is not None:
            self._show(progress_text(self._counts(), part, test))

    def _counts(self) -> str:
        left = sum(len(self._groups[index]) for index in self._left)
        here = sum(map(len, self._groups))
        done = self._done_before + here - left
        total = here if self._total is None else self._total
        seconds = duration(self._now() - self._start)
        if self._number is None:
            return f"gpuperf: tracing {done}/{total} tests, {seconds}"
        run = f"run {self._number + 1}"
        return f"gpuperf: measuring {done}/{total} tests, {run}, {seconds}"
