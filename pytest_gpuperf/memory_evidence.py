"""Which failures are worth a run that records the allocator."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final
from typing import Protocol

from .gate import Case
from .gate import Group
from .gate import Judge
from .gate import repeat
from .model.environment import DeviceKind
from .model.memory_metric import PEAK_ALLOCATED
from .model.memory_metric import PEAK_REQUESTED
from .model.memory_metric import PEAK_RESERVED
from .model.run import TestResult


RECORDING: Final = frozenset({DeviceKind.CUDA, DeviceKind.SCRIPTED})
"""Kinds of device with an allocator whose work can be recorded."""

MEMORY: Final = frozenset(
    {PEAK_ALLOCATED.name, PEAK_REQUESTED.name, PEAK_RESERVED.name}
)


class Recording(Protocol):
    """Measures groups once more and records what the allocator did."""

    def __call__(
        self, groups: Sequence[Group], number: int, *, recordings: Path
    ) -> Sequence[TestResult]: ...


def record_memory(
    groups: Sequence[Group],
    run: Recording,
    cases: Mapping[str, Case],
    judge: Judge,
    artefacts: Path,
) -> None:
    """Run what failed for its memory once more, and record what holds it."""
    recording = partial(run, recordings=artefacts)
    for case in repeat(groups, recording, cases, partial(fails_for_memory, judge)):
        forget_unrecorded(case)


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
