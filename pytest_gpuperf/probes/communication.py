"""How much of a step's communication no computation hides, read off a trace.

Communication is exposed while a collective runs and nothing computes. A rank that waits
for a slower peer does so inside of a collective, so its wait is counted as well. Kernels
are told apart by name, as Meta's Holistic Trace Analysis does for its overlap of
communication and computation: what has nccl in it communicates, all others compute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..devices.protocol import STEP_RANGE
from ..devices.protocol import TraceEvent
from .trace import ANNOTATIONS
from .trace import number


Interval = tuple[float, float]
"""Start and end in microseconds of the trace's clock."""

KERNEL: Final = "kernel"

IN_KERNELS: Final = re.compile("[nr]ccl", re.IGNORECASE)

ON_THE_HOST: Final = re.compile(r"(?:gloo|mpi|ucc):\w+")
"""Ranges of a collective, from its start to its end on a thread of the backend."""

COMPUTING: Final = re.compile("aten::")
"""Operations of the host; those of c10d only start a collective or wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Milliseconds of a step in which a collective runs, and in which it does alone."""

    total_ms: float
    exposed_ms: float


def find_communication(events: Sequence[TraceEvent]) -> Communication | None:
    """Return the mean over the steps of a trace; ``None`` where none is to be seen."""
    spans = [event for event in events if event.get("ph") == "X"]
    steps = sum(_is_on_host(e) and e.get("name") == STEP_RANGE for e in spans)
    collectives, computing = _in_kernels(spans) or _on_the_host(spans)
    if not steps or not collectives:
        return None
    total_us = sum(end - start for start, end in collectives)
    return Communication(
        total_ms=total_us / steps / 1e3,
        exposed_ms=uncovered(collectives, computing) / steps / 1e3,
    )


Sides = tuple[list[Interval], list[Interval]]
"""When something communicates, and when something computes."""


def _in_kernels(spans: Sequence[TraceEvent]) -> Sides | None:
    kernels = [e for e in spans if str(e.get("cat")).lower() == KERNEL]
    if not kernels:
        return None
    communicates = [IN_KERNELS.search(str(e.get("name"))) is not None for e in kernels]
    paired = list(zip(kernels, communicates, strict=True))
    return (
        joined(_intervals(e for e, is_one in paired if is_one)),
        joined(_intervals(e for e, is_one in paired if not is_one)),
    )


def _on_the_host(spans: Sequence[TraceEvent]) -> Sides:
    named = [(e, str(e.get("name"))) for e in spans if _is_on_host(e)]
    return (
        joined(_intervals(e for e, name in named if ON_THE_HOST.fullmatch(name))),
        joined(_intervals(e for e, name in named if COMPUTING.match(name))),
    )


def _is_on_host(event: TraceEvent) -> bool:
    return str(event.get("cat")).lower() in ANNOTATIONS


def _intervals(events: Iterable[TraceEvent]) -> Iterator[Interval]:
    for event in events:
        start, duration = number(event.get("ts")), number(event.get("dur"))
        if start is not None and duration is not None and duration > 0:
            yield start, start + duration


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Return *intervals* in order of time, those that overlap as one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def uncovered(intervals: Sequence[Interval], covers: Sequence[Interval]) -> float:
    """Return how long *intervals* are where *covers* are not; both as ``joined``."""
    length = sum(end - start for start, end in intervals)
    waiting = list(reversed(covers))
    for start, end in intervals:
        while waiting and waiting[-1][1] <= start:
            waiting.pop()
        for first, last in reversed(waiting):
            if first >= end:
                break
            length -= min(end, last) - max(start, first)
    return length
