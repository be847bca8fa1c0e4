"""A few steps of a test that failed, warmed up and traced: nothing of them is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..devices.base import MeasuringDevice
from ..model.measurement import Measurement
from .phases import MeasuredStep
from .profile import PROFILED_STEPS
from .profile import TRACE_FOLDER
from .profile import TRACE_SUFFIX
from .profile import file_name
from .profile import portable_from
from .profile import profile_steps
from .profile import write_trace
from .step import Deadline
from .step import Subject
from .warmup import warm_up


def traced(  # noqa: PLR0913  what is traced, and where it is kept
    device: MeasuringDevice,
    subject: Subject,
    *,
    test: str,
    seconds: float,
    folder: Path,
    root: Path,
) -> MeasuredStep:
    """Write a trace of *subject* below *folder*, with files named from *root* on.

    The measurement contains only the trace's path, or nothing if *seconds* leave no
    time for it. Raises what ``measure`` raises.
    """
    device.preflight()
    subject = subject.prepared(device, test)
    deadline = Deadline.after(seconds, device.now_ns)
    result = subject.run_once()
    device.synchronize()
    step_ms = warm_up(device, subject, deadline).step_ms
    measurement = Measurement(test=test, environment=device.environment())
    if deadline.leaves(step_ms * PROFILED_STEPS):
        path = folder / TRACE_FOLDER / f"{file_name(test)}{TRACE_SUFFIX}"
        events = profile_steps(device, subject, step_ms, deadline)
        write_trace(path, test, events, portable_from(root))
        measurement = replace(measurement, trace=str(path))
    return MeasuredStep(measurement=measurement, result=result)
