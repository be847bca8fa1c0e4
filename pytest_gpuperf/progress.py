"""Follows the measuring of many tests, and says how far it is.

It does so where a process starts, where a step arrives to be measured, and between the
parts of its warm-up and its rounds, of which a second passes at least between two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from statistics import fmean

from .gate import Group
from .report.progress import Standing
from .report.progress import progress_text


class Progress:
    """Knows what each group took, so it can say what is left; *show* is told, if any."""

    def __init__(
        self,
        show: Callable[[str], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._now = now
        self._seconds: dict[Group, float] = {}
        self._since: dict[int, float] = {}
        self._groups: Sequence[Group] = ()
        self._left: set[int] = set()
        self._side_by_side = 1
        self._number: int | None = None
        self._runs: int | None = None

    @property
    def is_shown(self) -> bool:
        """Whether anybody is told."""
        return self._show is not None

    def expect(self, runs: int | None) -> None:
        """Count on so many runs of each test from now on; ``None`` for who knows."""
        self._runs = runs

    def begin(
        self, groups: Sequence[Group], number: int | None, *, side_by_side: int
    ) -> None:
        """Follow run *number* of *groups*, so many of them *side_by_side*.

        A run without a number does not measure, but traces.
        """
        self._groups, self._number = groups, number
        self._left = set(range(len(groups)))
        self._side_by_side = max(1, side_by_side)

    def started(self, index: int) -> None:
        """Say that the group with this *index* is next."""
        self._since[index] = self._now()
        self._tell(self._groups[index][0])

    def arrived(self, call: str, doing: str = "") -> None:
        """Say that a step is there to be measured: its fixtures are set up."""
        self._tell(call, doing)

    def ended(self, index: int) -> None:
        """Remember what it took."""
        self._left.discard(index)
        since = self._since.pop(index, None)
        if since is not None:
            self._seconds[self._groups[index]] = self._now() - since

    def _tell(self, test: str, doing: str = "") -> None:
        if self._show is not None:
            self._show(progress_text(self._standing(test, doing)))

    def _standing(self, test: str, part: str) -> Standing:
        left = [self._groups[index] for index in self._left]
        total = sum(map(len, self._groups))
        return Standing(
            doing="tracing" if self._number is None else "measuring",
            done=total - sum(map(len, left)),
            total=total,
            run=None if self._number is None else self._number + 1,
            runs=self._runs,
            seconds_left=self._seconds_left(left),
            test=test,
            part=part,
        )

    def _seconds_left(self, left: Iterable[Group]) -> float | None:
        if not self._seconds:
            return None
        later = (self._runs or 0) - (self._number or 0) - 1
        this_run = self._cost(left)
        rest = self._cost(self._groups) * max(0, later)
        return (this_run + rest) / self._side_by_side

    def _cost(self, groups: Iterable[Group]) -> float:
        typical = fmean(self._seconds.values())
        return sum(self._seconds.get(group, typical) for group in groups)
