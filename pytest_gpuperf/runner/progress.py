"""Tracks the progress of a run, and estimates its remaining time.

It is shown when a process starts, when a step arrives to be measured, between the parts
of its warm-up and its rounds (at most once a second), and when nothing has happened for
some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from functools import lru_cache
from math import comb
from statistics import fmean
from typing import Final

from ..model.run import TestResult
from ..report.screen.progress import Standing
from ..report.screen.progress import progress_text
from .screening import MOST_MADE_UP
from .screening import Group


# Estimates the remaining time from the cost of runs and how often they were disturbed.

NEWEST: Final = 3
"""Runs of a group that say what its next one costs: the first may have compiled, and a
machine does not stay as busy as it was."""

DISTURBED_BEFORE: Final = 0.75
RUNS_BEFORE: Final = 4.0
"""Assumed before any run, with the weight of four runs: one in five is disturbed."""


class Pace:
    """Learns from each run of each group, on the slots that it was given."""

    def __init__(self) -> None:
        self._seconds: dict[Group, list[float]] = {}
        self._slots: dict[Group, tuple[int, ...]] = {}
        self._runs: dict[Group, int] = {}
        self._clean: dict[str, int] = {}
        self._disturbed: dict[Group, int] = {}

    def assigned(
        self, groups: Sequence[Group], slots: Sequence[tuple[int, ...]]
    ) -> None:
        """Remember where *groups* run: those of one slot run one behind the other."""
        self._slots.update(zip(groups, slots, strict=True))

    def note(
        self, group: Group, seconds: float, results: Sequence[TestResult] = ()
    ) -> None:
        """Learn that a run of *group* took so many *seconds*, its process included."""
        self._seconds.setdefault(group, []).append(seconds)
        self._runs[group] = self._runs.get(group, 0) + 1
        dirty = {r.test for r in results if any(c.measurement.dirty for c in r.calls)}
        self._disturbed[group] = self._disturbed.get(group, 0) + bool(dirty)
        for test in set(group) - dirty:
            self._clean[test] = self._clean.get(test, 0) + 1

    def runs_to_come(self, group: Group, wanted: int) -> float:
        """Return how many more runs it takes till each test has *wanted* clean ones."""
        clean = min(self._clean.get(test, 0) for test in group)
        most = wanted + MOST_MADE_UP - self._runs.get(group, 0)
        # Rounded, so that the cache of `expected_runs` is hit: its sums are slow.
        share = 1 - self._share_disturbed(group)
        return expected_runs(max(0, wanted - clean), max(0, most), round(share, 3))

    def seconds_of(self, runs: Mapping[Group, float]) -> float | None:
        """Return what so many *runs* of each group will take; ``None`` if none was made."""
        if not self._seconds:
            return None
        typical = fmean(map(self._cost, self._seconds))
        load: dict[int, float] = {}
        for group, count in runs.items():
            cost = self._cost(group) if group in self._seconds else typical
            for slot in self._slots.get(group, (0,)):
                load[slot] = load.get(slot, 0.0) + count * cost
        # Slots run side by side: the run ends when the one with the most work does.
        return max(load.values(), default=0.0)

    def _cost(self, group: Group) -> float:
        return fmean(self._seconds[group][-NEWEST:])

    def _share_disturbed(self, group: Group) -> float:
        """A share of the whole run's, drawn to the group's own as its runs come in."""
        # Shrinkage, as by a beta prior: few runs of one group say little about its own
        # share, so it starts from that of the whole run.
        everywhere = sum(self._disturbed.values()) + DISTURBED_BEFORE
        share = everywhere / (sum(self._runs.values()) + RUNS_BEFORE)
        own = self._disturbed.get(group, 0) + RUNS_BEFORE * share
        return own / (self._runs.get(group, 0) + RUNS_BEFORE)


@lru_cache(maxsize=4096)
def expected_runs(clean: int, most: int, share: float) -> float:
    """Return the expected runs until *clean* of them are clean, but *most* at most.

    A run is clean with probability *share*. The expectation is the sum, over each
    number of runs, of the chance that they are too few.
    """
    return sum(
        comb(runs, found) * share**found * (1 - share) ** (runs - found)
        for runs in range(most)
        for found in range(min(clean, runs + 1))
    )


class Progress:
    """Estimates what is left from what each group took, and passes it to *show*."""

    def __init__(
        self,
        show: Callable[[str], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._now = now
        self._pace = Pace()
        self._since: dict[int, float] = {}
        self._groups: Sequence[Group] = ()
        self._left: set[int] = set()
        self._number: int | None = None
        self._wanted: Mapping[Group, int] = {}
        self._done_before = 0
        self._total: int | None = None
        self._last = ("", "")

    def expect(self, wanted: Mapping[Group, int]) -> None:
        """Count on so many undisturbed runs of each group; of none if nobody knows."""
        self._wanted = wanted

    def among(self, done: int, total: int | None) -> None:
        """Say of what begins next that so many of *total* tests are *done* before it."""
        self._done_before, self._total = done, total

    def begin(
        self,
        groups: Sequence[Group],
        number: int | None,
        slots: Sequence[tuple[int, ...]],
    ) -> None:
        """Follow run *number* of *groups*, each on its *slots*.

        A run without a number does not measure, but traces.
        """
        self._groups, self._number = groups, number
        self._left = set(range(len(groups)))
        self._pace.assigned(groups, slots)

    def started(self, index: int) -> None:
        """Say that the group with this *index* is next."""
        self._since[index] = self._now()
        self._tell(self._groups[index][0])

    def arrived(self, call: str, doing: str = "") -> None:
        """Say that a step is there to be measured: its fixtures are set up."""
        self._tell(call, doing)

    def waiting(self) -> None:
        """Say again what is done, as nothing new was heard for a while."""
        self._tell(*self._last)

    def ended(self, index: int, results: Sequence[TestResult] = ()) -> None:
        """Remember what it took, and which tests were disturbed."""
        self._left.discard(index)
        since = self._since.pop(index, None)
        # Traced runs have no number. They cost more than measured ones and would spoil
        # the pace.
        if since is not None and self._number is not None:
            self._pace.note(self._groups[index], self._now() - since, results)

    def seconds_for(self, wanted: Mapping[Group, int]) -> float | None:
        """Return how long it takes till each group has so many undisturbed runs."""
        runs = {g: self._pace.runs_to_come(g, count) for g, count in wanted.items()}
        return self._pace.seconds_of(runs)

    def _tell(self, test: str, doing: str = "") -> None:
        self._last = (test, doing)
        if self._show is not None:
            self._show(progress_text(self._standing(test, doing)))

    def _standing(self, test: str, part: str) -> Standing:
        left = [self._groups[index] for index in self._left]
        here = sum(map(len, self._groups))
        return Standing(
            doing="tracing" if self._number is None else "measuring",
            done=self._done_before + here - sum(map(len, left)),
            total=here if self._total is None else self._total,
            run=None if self._number is None else self._number + 1,
            runs=max(self._wanted.values(), default=None),
            made_up=MOST_MADE_UP,
            seconds_left=self._seconds_left(left),
            test=test,
            part=part,
        )

    def _seconds_left(self, left: Sequence[Group]) -> float | None:
        runs: dict[Group, float] = dict.fromkeys(left, 1)
        for group, count in self._wanted.items():
            runs[group] = self._pace.runs_to_come(group, count)
        return self._pace.seconds_of(runs)
