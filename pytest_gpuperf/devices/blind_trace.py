"""Whether a profiler's trace saw what the GPU did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import PreflightError
from .protocol import TraceEvent


DEVICE_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Trace categories of what the GPU did."""

HOST_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver"})
"""Trace categories of calls into CUDA."""

ENQUEUES: Final = ("Launch", "Memcpy", "Memset")
"""Parts of the names of calls that give the GPU work."""


def saw_device_work(trace: Sequence[TraceEvent]) -> bool:
    """Whether the GPU did anything in *trace*: a kernel, a copy, a fill."""
    return any(event.get("cat") in DEVICE_WORK for event in trace)


def refuse_blind_trace(trace: Sequence[TraceEvent]) -> None:
    """Raise ``PreflightError`` for a trace with work enqueued and none done.

    A trace that holds neither is believed: its step launched nothing.
    """
    if saw_device_work(trace):
        return
    calls = [str(e.get("name")) for e in trace if e.get("cat") in HOST_CALLS]
    enqueued = [call for call in calls if any(part in call for part in ENQUEUES)]
    if not enqueued:
        return
    msg = (
        f"profiling unavailable: the trace holds {enqueued[0]} and no kernel, because "
        "another client of CUPTI (nsys, ncu, DCGM) holds the GPU's profiler or a "
        "driver bug lost its records; run without the other client"
    )
    raise PreflightError(msg)
