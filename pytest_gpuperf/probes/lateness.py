"""Who is to blame for the moments in which the GPU has nothing to do.

While the host is blocked in a wait, it prepares nothing; had it not waited, all that
it does later would come earlier by as much. So the idle time behind a wait is laid to
that wait, up to the time that it took: that is the most which could be won without it.
What is left goes to what the host does in it: wait for the loader, else work and launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.diagnosis import Bottleneck
from ..model.finding import Location
from .communication import Interval
from .communication import uncovered


Blame = tuple[Bottleneck, Location | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    """A wait of the host in the step of this index, blocked for ``length_us``."""

    step: int
    start_us: float
    end_us: float
    length_us: float
    blame: Blame


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """When the host waits for the loader, as ``joined``, and where that is."""

    intervals: Sequence[Interval] = ()
    location: Location | None = None


def gaps_between(occupied: Sequence[Interval], within: Interval) -> Iterator[Interval]:
    """Yield the parts of *within* that *occupied*, as ``joined``, leaves free."""
    at, end = within
    for first, last in occupied:
        if first > at:
            yield at, min(first, end)
        at = max(at, last)
    if at < end:
        yield at, end


@dataclass(slots=True)
class _Debt:
    """A wait, and how much idle time may still be laid to it."""

    wait: HostWait
    left_us: float

    def take(self, most_us: float) -> float:
        taken = min(self.left_us, most_us)
        self.left_us -= taken
        return taken


def blamed_gaps(
    gaps: Sequence[Interval],
    waits: Sequence[HostWait],
    loading: Loading,
    launched_at: Callable[[float], Location | None],
) -> dict[Blame, float]:
    """Return the microseconds of *gaps*, in order of time, by who is to blame.

    *launched_at* tells where the work was launched that ended a gap at this moment.
    """
    lost: dict[Blame, float] = defaultdict(float)
    ordered = sorted(waits, key=lambda wait: wait.start_us, reverse=True)
    coming = [_Debt(wait, wait.length_us) for wait in ordered]
    owed: list[_Debt] = []
    for gap in gaps:
        start_us, end_us = gap
        while coming and coming[-1].wait.start_us <= start_us:
            owed.append(coming.pop())
        left = end_us - start_us
        for debt, most_us in (*_behind(owed, left), *_inside(coming, end_us)):
            taken = debt.take(min(left, most_us))
            lost[debt.wait.blame] += taken
            left -= taken
        owed = [debt for debt in owed if debt.left_us > 0]
        loaded = min(left, end_us - start_us - uncovered([gap], loading.intervals))
        lost[Bottleneck.LOADER, loading.location] += loaded
        lost[Bottleneck.LAUNCHES, launched_at(end_us)] += left - loaded
    return lost


def _behind(owed: Sequence[_Debt], gap_us: float) -> Iterator[tuple[_Debt, float]]:
    """Yield the waits before a gap, the last one first, and what each may take of it."""
    for debt in reversed(owed):
        yield debt, gap_us


def _inside(coming: Sequence[_Debt], end_us: float) -> Iterator[tuple[_Debt, float]]:
    """Yield the waits that begin in a gap, and what of it they last."""
    for debt in reversed(coming):
        if debt.wait.start_us >= end_us:
            return
        yield debt, min(debt.wait.end_us, end_us) - debt.wait.start_us
