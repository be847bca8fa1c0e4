"""A few steps of a test that failed, warmed up and traced: nothing of them is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..devices.protocol import Device
from ..model.measurement import Measurement
from .deadline import Deadline
from .file_name import file_name
from .phases import Measured
from .portable import portable_from
from .profiling import PROFILED_STEPS
from .profiling import profile_steps
from .subject import Subject
from .trace_file import SUFFIX
from .trace_file import write_trace
from .warmup import warm_up


def traced(  # noqa: PLR0913  what is traced, and where it is kept
    device: Device,
    subject: Subject,
    *,
    test: str,
    seconds: float,
    folder: Path,
    root: Path,
) -> Measured:
    """Write a trace of *subject* into *folder*, with files named from *root* on.

    The measurement holds nothing but the trace's path, or nothing at all where
    *seconds* leave no time for it. Raises what ``measure`` raises.
    """
    device.preflight()
    subject = subject.prepared(device, test)
    deadline = Deadline.after(seconds, device.now_ns)
    result = subject.run_once()
    device.synchronize()
    step_ms = warm_up(device, subject, deadline).step_ms
    measurement = Measurement(test=test, environment=device.environment())
    if deadline.leaves(step_ms * PROFILED_STEPS):
        path = folder / f"{file_name(test)}{SUFFIX}"
        events = profile_steps(device, subject, step_ms, deadline)
        write_trace(path, test, events, portable_from(root))
        measurement = replace(measurement, trace=str(path))
    return Measured(measurement=measurement, result=result)
