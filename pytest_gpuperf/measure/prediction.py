"""Predicts the memory of a step on a GPU that is not there, by purpose."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..devices.simulated import settings_against_allocated, settings_against_reserved
from ..model.metric import Unit
from ..model.metrics import (
    GARBAGE,
    GROWTH,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    PREDICTED,
    RETAINED_GRAPHS,
    WORKSPACES,
)
from .memory import (
    COLLECTOR_OFF,
    LEAKS,
    MOST_MEMORY_STEPS,
    counting,
    findings_of_garbage,
    findings_of_picture,
    garbage_remark,
    graphs_left,
    least_rise,
)
from .plan import Found
from .step import Subject


if TYPE_CHECKING:
    from ..devices.simulated import MemoryAudit


PREDICTED_STEPS: Final = 2
"""Steps after the first, which allocates what is kept. The last is explained, too."""

MOST_UNLIKE: Final = 3
"""Steps to explain until one is like that before it: what a step keeps may be freed some
steps later, and until then each begins with more."""

SEVERAL_STREAMS: Final = (
    "memory is taken on several streams, each with its own cached blocks, and the "
    "simulated allocator knows one stream"
)

COMPILED_PEAK: Final = (
    "torch.compile: the peak is that of eager code, and mostly a lower one on a GPU, "
    "where what is fused is never in memory"
)

COMPILED_RESERVED: Final = (
    "what torch reserves for compiled code was up to 20 % more than for eager code"
)

COLD_CACHE: Final = (
    "a step that compiles with a cold cache takes up to 50 MiB more, the L2 cache of an "
    "H100, which is emptied between kernels that are tried"
)

RETRIED: Final = (
    "the GPU would run out of memory in a step, and its allocator flush its cache"
)

PREDICTED_BYTES: Final = tuple(
    name for name, metric in PREDICTED.items() if metric.unit is Unit.BYTES
)

RESERVED: Final = (PEAK_RESERVED.name,)
"""What depends on the blocks that the allocator keeps."""

PREDICTED_NAMES: Final = (*PREDICTED_BYTES, RETAINED_GRAPHS.name)
"""What watching memory is for."""

PREDICTED_PEAKS: Final = tuple(name for name, m in PREDICTED.items() if m.error)


def predict_memory(memory: MemoryAudit, subject: Subject, root: str) -> Found:
    """Run ``PREDICTED_STEPS`` steps of *subject*, after one that *memory* has watched.

    Lines below the directory *root* are the project's. Raises whatever the step raises.
    """

    def run() -> Callable[[], object]:
        arguments = subject.arguments()
        return lambda: subject.step(*arguments)

    for _ in range(PREDICTED_STEPS - 1):
        # With its lines: a step may keep what it made until the next is over.
        memory.located_step(run(), root)
    picture = None
    for _ in range(MOST_UNLIKE):
        picture = memory.explained_step(run(), root)
        if picture is not None or memory.memories()[-1].peak is None:
            break
    # Steps that only confirm what leaks would make the peak of a leak larger.
    for_peak = len(memory.graphs)
    while len(memory.graphs) < MOST_MEMORY_STEPS and any(
        _numbers(memory, for_peak)[name] for name in LEAKS
    ):
        memory.step(run())
    missing = [f"{op}: {reason}" for op, reason in memory.live.unchecked]
    if missing:
        reason = f"only a GPU can judge {'; '.join(missing)}"
        return Found(unmeasured=dict.fromkeys(PREDICTED_NAMES, reason))
    unmeasured = _unpredictable(several_streams=memory.live.several_streams)
    exact = {
        name: value
        for name, value in _numbers(memory, for_peak).items()
        if name not in unmeasured
    }
    found = (
        list(findings_of_picture(picture, PREDICTED_PEAKS))
        if picture is not None
        else []
    )
    if any(exact.get(name) for name in LEAKS):
        # Two more steps, so only if there is something to explain.
        left = memory.left_by_step(iter(run, None), root)
        found.extend(counting(left, LEAKS))
    if GARBAGE.name not in unmeasured and memory.may_leave_garbage:
        garbage = memory.garbage_of_step(iter(run, None), root)
        exact[GARBAGE.name] = garbage.nbytes
        found.extend(findings_of_garbage(garbage, (GARBAGE.name,)))
    predicted = Found(
        exact=exact,
        unmeasured=unmeasured,
        findings=tuple(found),
        remarks=tuple(_remarks(memory, exact)),
    )
    return of_compiled(predicted) if memory.live.is_compiled else predicted


def _remarks(memory: MemoryAudit, exact: Mapping[str, int]) -> Iterator[str]:
    if any(step.retries for step in memory.memories()[1:]):
        yield RETRIED
    garbage, peak = (exact.get(m.name, 0) for m in (GARBAGE, PEAK_ALLOCATED))
    if memory.collector.is_off:
        yield COLLECTOR_OFF.format(PREDICTED_STEPS + 1)
    elif garbage > GARBAGE.floor and peak:
        yield garbage_remark(garbage, peak)


def _numbers(memory: MemoryAudit, for_peak: int) -> Mapping[str, int]:
    # Without the first step, which takes what every later one keeps.
    steps = memory.memories()[1:]
    ends, steps = [step.end_bytes for step in steps], steps[: for_peak - 1]
    return {
        GROWTH.name: least_rise(ends) or 0,
        RETAINED_GRAPHS.name: graphs_left(memory.graphs[1:]) or 0,
        PEAK_ALLOCATED.name: max(step.allocated_bytes for step in steps),
        WORKSPACES.name: memory.live.workspace_bytes,
        PEAK_RESERVED.name: max(step.reserved_bytes for step in steps),
        GARBAGE.name: 0,
    }


def of_compiled(found: Found) -> Found:
    """Take predicted peaks of eager code as what they say of the same code compiled.

    What is allocated bounds it, what is reserved says nothing.
    """
    unknown = {name: COMPILED_RESERVED for name in RESERVED if name in found.exact}
    exact = {n: value for n, value in found.exact.items() if n not in unknown}
    return replace(
        found,
        unmeasured={**found.unmeasured, **unknown},
        exact=exact,
        at_most={name: COMPILED_PEAK for name in PREDICTED_PEAKS if name in exact},
    )


def _unpredictable(*, several_streams: bool) -> Mapping[str, str]:
    """Why, by metric, streams or the allocator's settings leave no number."""
    reserved = settings_against_reserved(os.environ)
    if reserved is None and several_streams:
        reserved = SEVERAL_STREAMS
    allocated = settings_against_allocated(os.environ)
    found = {} if reserved is None else dict.fromkeys(RESERVED, reserved)
    return found if allocated is None else dict.fromkeys(PREDICTED_BYTES, allocated)
