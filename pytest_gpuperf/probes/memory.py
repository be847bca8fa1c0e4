"""Peak memory of single steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..devices.protocol import Device
from .deadline import Deadline
from .subject import Subject


STEPS: Final = 3


def measure_peak(
    device: Device, subject: Subject, step_ms: float, deadline: Deadline
) -> Mapping[str, int]:
    """Return the largest reading by metric name over up to ``STEPS`` steps."""
    peak: dict[str, int] = {}
    for done in range(STEPS):
        if done and not deadline.leaves(step_ms):
            break
        reading = device.measure_memory(subject.step, subject.arguments())
        for name, value in reading.exact.items():
            peak[name] = max(value, peak.get(name, value))
    return peak
