"""Which failures are worth a run that records the allocator."""

from __future__ import annotations

from typing import Final

from .gate import Case
from .gate import Judge
from .model.environment import DeviceKind
from .model.memory_metric import PEAK_ALLOCATED
from .model.memory_metric import PEAK_REQUESTED
from .model.memory_metric import PEAK_RESERVED


RECORDING: Final = frozenset({DeviceKind.CUDA, DeviceKind.SCRIPTED})
"""Kinds of device with an allocator whose work can be recorded."""

MEMORY: Final = frozenset(
    {PEAK_ALLOCATED.name, PEAK_REQUESTED.name, PEAK_RESERVED.name}
)


def forget_unrecorded(case: Case) -> None:
    """Drop the newest run of *case* if nothing was recorded: it was made for no more."""
    newest = case.results[-1]
    if not any(call.measurement.snapshot for call in newest.calls):
        case.results.pop()


def fails_for_memory(judge: Judge, case: Case) -> bool:
    """Whether a call of *case* failed because its step takes too much memory."""
    return any(
        verdict.outcome.fails and verdict.metric in MEMORY
        for calls in case.calls.values()
        for verdict in judge(calls).verdicts
    )
