"""Whether a profiler's trace saw what the GPU did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..errors import PreflightError
from .protocol import TraceEvent


DEVICE_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Trace categories of what the GPU did."""

HOST_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver"})
"""Trace categories of calls into CUDA."""

ENQUEUE: Final = re.compile("Launch|Memcpy|Memset")
"""Parts of the names of calls that give the GPU work."""

KERNEL_LAUNCH: Final = re.compile(r"Launch\w*Kernel")
"""Names of calls that launch a kernel for sure; a graph may hold copies alone."""


def saw_device_work(trace: Sequence[TraceEvent]) -> bool:
    """Whether the GPU did anything in *trace*: a kernel, a copy, a fill."""
    return any(event.get("cat") in DEVICE_WORK for event in trace)


def refuse_blind_trace(trace: Sequence[TraceEvent]) -> None:
    """Raise ``PreflightError`` for a trace with work enqueued and none done.

    A trace that holds neither is believed: its step launched nothing. One that holds
    copies and lacks the kernels that were launched is not.
    """
    if any(event.get("cat") == "kernel" for event in trace):
        return
    leaves_work = KERNEL_LAUNCH if saw_device_work(trace) else ENQUEUE
    calls = [str(e.get("name")) for e in trace if e.get("cat") in HOST_CALLS]
    lost = [call for call in calls if leaves_work.search(call)]
    if not lost:
        return
    msg = (
        f"profiling unavailable: the trace holds {lost[0]} and no kernel, because "
        "another client of CUPTI (nsys, ncu, DCGM) holds the GPU's profiler or a "
        "driver bug lost its records; run without the other client"
    )
    raise PreflightError(msg)
