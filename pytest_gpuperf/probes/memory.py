"""Memory of single steps: what a step needs at its peak, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..devices.protocol import Device
from ..devices.protocol import MemoryReading
from ..model.memory_metric import ALLOC_RETRIES
from ..model.memory_metric import DEVICE_ALLOCS
from ..model.memory_metric import GROWTH
from ..model.metric import MIB
from .deadline import Deadline
from .subject import Subject


STEPS: Final = 3

MOST_STEPS: Final = 8
"""Steps while each ends with more than the one before: eight batches that happen to
grow in size are one of 40,320 orders."""

BY_EVERY_STEP: Final = frozenset({DEVICE_ALLOCS.name})
"""Of which the smallest reading counts: what one batch of a new size costs once is no
habit of the step."""


def measure_memory(
    device: Device, subject: Subject, step_ms: float, deadline: Deadline
) -> Mapping[str, int]:
    """Return what steps show by metric name; what is left out had no room in the cap."""
    readings: list[MemoryReading] = []
    while len(readings) < STEPS or (len(readings) < MOST_STEPS and _growth(readings)):
        if readings and not deadline.leaves(step_ms):
            break
        readings.append(device.measure_memory(subject.step, subject.arguments()))
    growth = _growth(readings) if len(readings) >= STEPS else None
    left_behind = {} if growth is None else {GROWTH.name: growth}
    return {name: _over(name, readings) for name in readings[0].exact} | left_behind


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
