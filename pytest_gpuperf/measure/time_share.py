"""The share of the time cap that is reserved for counts and sizes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ..model.metric import MeasuringPhase
from ..model.metrics import COLLECTIVE_BYTES
from ..model.metrics import COLLECTIVES
from ..model.metrics import PEAK_ALLOCATED
from ..model.metrics import RANK_PEAK
from ..model.metrics import SYNCS
from ..model.metrics import read_in
from .memory import MEMORY_STEPS
from .step import Deadline
from .timing import LEAST_ROUNDS


LATER_STEPS: Final = 1 + MEMORY_STEPS + 1 + 1
"""Steps that the phases after the timed rounds need: an isolated one, those watched for
memory, a profiled one and one for the compiler."""

MOST_RESERVED: Final = 0.5
"""Share of the cap beyond which nothing is reserved: times need the rest."""

ROUNDS_SHARE: Final = 0.25
"""Share of the cap that a warm-up leaves to the timed rounds at most."""

MOST_CAPS: Final = 3
"""Multiple of the cap that phases have if a budget or a baseline asks for them.

A step as long as the cap runs once first, once for memory and once for the trace.
"""

PREPARING_SECONDS: Final = 60
"""What set-up, imports and warm-up may take: the cap bounds measured steps alone."""


def longest_run(tests: int, seconds: float) -> float:
    """Return after how many seconds a run of *tests* is killed, of *seconds* each."""
    return tests * (MOST_CAPS * seconds + PREPARING_SECONDS)


LATENCY_NAMES: Final = read_in(MeasuringPhase.ISOLATED)

MEMORY_NAMES: Final = read_in(MeasuringPhase.MEMORY)

COMPILED_NAMES: Final = read_in(MeasuringPhase.COMPILER)

COUNTED_NAMES: Final = read_in(MeasuringPhase.COUNTERS)

OPERATIONS_NAMES: Final = read_in(MeasuringPhase.PEAK)

TRACE: Final = read_in(MeasuringPhase.TRACE)

LATER: Final = LATENCY_NAMES | MEMORY_NAMES | COMPILED_NAMES | TRACE
"""Metrics that are not read off timed rounds."""

OF_ONE_RANK: Final = {
    RANK_PEAK.name: PEAK_ALLOCATED.name,
    COLLECTIVES.name: SYNCS.name,
    COLLECTIVE_BYTES.name: SYNCS.name,
}
"""The metric of each rank that is read in the same phase as a metric of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """The points in time at which the phases of a measurement must end.

    ``cap`` is the end for all. A phase may go on to ``limit`` if one of its metrics is
    ``asked`` for by a budget or a baseline, by name.
    """

    cap: Deadline
    limit: Deadline
    asked: frozenset[str] = frozenset()
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        now_ns: Callable[[], int],
        seconds: float,
        asked: Collection[str] = (),
    ) -> TimeShare:
        """Return what a measurement has that may cost so many *seconds* from now on."""
        cap = Deadline.after(seconds, now_ns)
        return cls(
            cap=cap,
            # A negative reserve moves the point later.
            limit=cap.reserving(-1e3 * (MOST_CAPS - 1) * seconds),
            asked=frozenset(OF_ONE_RANK.get(name, name) for name in asked),
            seconds=seconds,
        )

    def timed(self, step_ms: float) -> Deadline:
        """Return when timing ends, so that later phases of such a step have time."""
        most_ms = 1e3 * MOST_RESERVED * self.seconds
        return self.cap.reserving(min(LATER_STEPS * step_ms, most_ms))

    def warm(self, step_ms: float) -> Deadline:
        """Return when a warm-up ends, so that rounds of such a step have time."""
        most_ms = 1e3 * ROUNDS_SHARE * self.seconds
        return self.timed(step_ms).reserving(min(LEAST_ROUNDS * step_ms, most_ms))

    def asks_for(self, metrics: Collection[str]) -> bool:
        """Whether a budget or a baseline asks for one of *metrics*."""
        return not self.asked.isdisjoint(metrics)

    def may_overrun(self, metrics: Collection[str], step_ms: float) -> bool:
        """Whether a phase that reads *metrics* may take one more step beyond the cap."""
        return self.asks_for(metrics) and self.limit.leaves(step_ms)

    def until(self, metrics: Collection[str]) -> Deadline:
        """Return when a phase ends that reads *metrics*."""
        return self.limit if self.asks_for(metrics) else self.cap
