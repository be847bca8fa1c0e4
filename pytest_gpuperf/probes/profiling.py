"""The steps that are profiled: fewer of them where the profiler makes them too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..devices.protocol import Device
from ..devices.protocol import TraceEvent
from .deadline import Deadline
from .subject import Subject


PROFILED_STEPS: Final = 3

SLOWED: Final = 100
"""How many times as long as timed a step of small operations alone may take, recorded and
read: a loader's own work in Python took 65 and 35 times as long, on a CPU."""


def profile_steps(
    device: Device, subject: Subject, step_ms: float, deadline: Deadline
) -> Sequence[TraceEvent]:
    """Return the trace of three steps, or of one where three have no room in the cap.

    Where they may have none, one is tried first. Raises whatever the step raises.
    """
    if not deadline.leaves(SLOWED * step_ms * PROFILED_STEPS):
        start_ns = device.now_ns()
        events = _profile(device, subject, steps=1)
        took_ms = (device.now_ns() - start_ns) / 1e6
        if not deadline.leaves(took_ms * PROFILED_STEPS):
            return events
    return _profile(device, subject, steps=PROFILED_STEPS)


def _profile(device: Device, subject: Subject, *, steps: int) -> Sequence[TraceEvent]:
    batches = [subject.arguments() for _ in range(steps)]
    return device.profile(subject.step, batches)
