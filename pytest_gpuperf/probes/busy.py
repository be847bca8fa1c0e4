"""How busy a GPU is, read off a trace.

Busy is the share of a window of whole steps in which at least one kernel runs, on any
stream: the union of their times, not the sum. Copies do not count, they are told apart.
NVML's utilization is another number: it is sampled, and counts a sample as full where
anything ran in it (``nvmlUtilization_t``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..devices.protocol import TraceEvent
from .communication import Interval
from .gpu_work import KERNELS
from .gpu_work import WorkKind
from .gpu_work import window_of
from .gpu_work import work_in
from .trace import parse


NO_KERNEL: Final = "no kernel ran on the GPU in the profiled steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Percent of the window in which kernels run, and in which copies do."""

    percent: float
    copying_percent: float


def find_busy(events: Sequence[TraceEvent]) -> Busy | None:
    """Return the shares of the profiled steps; ``None`` where no kernel is to be seen."""
    work = list(work_in(events))
    window = window_of(parse(events), work)
    if window is None:
        return None
    kernels = length_of(window.of(work, *KERNELS))
    if not kernels:
        return None
    copies = length_of(window.of(work, WorkKind.COPY))
    return Busy(
        percent=100 * kernels / window.length_us,
        copying_percent=100 * copies / window.length_us,
    )


def length_of(intervals: Sequence[Interval]) -> float:
    """Return how long *intervals* are that do not overlap."""
    return sum(end - start for start, end in intervals)
