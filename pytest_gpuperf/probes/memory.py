"""Memory of single steps: what a step needs at its peak, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..devices.protocol import Device
from ..devices.protocol import MemoryReading
from ..model.finding import Finding
from ..model.memory_metric import ALLOC_RETRIES
from ..model.memory_metric import DEVICE_ALLOCS
from ..model.memory_metric import GROWTH
from ..model.metric import MIB
from .deadline import Deadline
from .pictured import findings_of_picture
from .subject import Subject


STEPS: Final = 3

MOST_STEPS: Final = 8
"""Steps while each ends with more than the one before: eight batches that happen to
grow in size are one of 40,320 orders."""

BY_EVERY_STEP: Final = frozenset({DEVICE_ALLOCS.name})
"""Of which the smallest reading counts: what one batch of a new size costs once is no
habit of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes and counts by metric name, and what is held at the peak, where that is seen."""

    exact: Mapping[str, int]
    findings: tuple[Finding, ...] = ()


def measure_memory(
    device: Device, subject: Subject, step_ms: float, deadline: Deadline
) -> Memory:
    """Return what steps show; what is left out had no room in the cap."""
    readings: list[MemoryReading] = []
    while len(readings) < STEPS or (len(readings) < MOST_STEPS and _growth(readings)):
        if readings and not deadline.leaves(step_ms):
            break
        start_ns = device.now_ns()
        last = readings[-1] if len(readings) == STEPS - 1 else None
        readings.append(device.measure_memory(subject.step, subject.arguments(), last))
        # watched, a step of small operations takes many times as long
        step_ms = max(step_ms, (device.now_ns() - start_ns) / 1e6)
    growth = _growth(readings) if len(readings) >= STEPS else None
    left_behind = {} if growth is None else {GROWTH.name: growth}
    exact = {name: _over(name, readings) for name in readings[0].exact} | left_behind
    return Memory(exact=exact, findings=tuple(_held(readings)))


def _held(readings: Sequence[MemoryReading]) -> Iterator[Finding]:
    for reading in readings:
        if reading.picture is not None:
            yield from findings_of_picture(reading.picture, tuple(reading.exact))


def _over(name: str, readings: Sequence[MemoryReading]) -> int:
    values = [reading.exact[name] for reading in readings if name in reading.exact]
    return min(values) if name in BY_EVERY_STEP else max(values)


def _growth(readings: Sequence[MemoryReading]) -> int | None:
    """Return the least that a step left behind; 0 if one of them left nothing."""
    ends = [r.end_bytes for r in readings if r.end_bytes is not None]
    grown = [after - before for before, after in pairwise(ends)]
    return max(0, min(grown)) if grown else None


def remarks_on(memory: Mapping[str, int]) -> Iterator[str]:
    """Say what should not be, whether or not a baseline has it."""
    growth = memory.get(GROWTH.name, 0)
    if growth:
        yield f"every step leaves {growth / MIB:.3g} MiB allocated: is that a leak?"
    if memory.get(ALLOC_RETRIES.name, 0):
        yield "the allocator ran out of memory in a step and had to flush its cache"
