"""What a script tells of a step: its trace, and what is held at its peak."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from ..model.finding import Location
from ..model.finding import Phase
from ..model.metric import MIB
from .memory_picture import Held
from .memory_picture import Picture
from .memory_picture import Role
from .protocol import STEP_RANGE
from .protocol import SYNC_MARKER
from .protocol import Step
from .protocol import TraceEvent
from .simulated_gpu import SimulatedGpu
from .sites import Site


def simulated(
    schedule: Sequence[Sequence[Any]], step: Step, batches: Sequence[Sequence[object]]
) -> Sequence[TraceEvent]:
    """Run a step a batch, and return what a host and a GPU show that keep *schedule*."""
    gpu = SimulatedGpu()
    for arguments in batches:
        step(*arguments)
        gpu.play(schedule)
    return gpu.events


def scripted_picture(peak: Mapping[str, Any]) -> Picture:
    """Return what is held at a peak, as a script tells of it."""
    file, line, function = peak["at"]
    location = Location(file=file, line=line, function=function)
    site = Site(location=location, innermost=location, phase=Phase(peak["phase"]))
    return Picture(
        op=peak["op"],
        site=site,
        by_role={Role(name): round(mb * MIB) for name, mb in peak["mb"].items()},
        held=tuple(
            Held(op=op, site=site, nbytes=round(mb * MIB), blocks=1)
            for op, mb in peak["held"].items()
        ),
    )


def step_events(syncs: int, start_us: float) -> Iterator[TraceEvent]:
    """Yield what a profiler would have seen of a step that waits so often."""
    yield _event("user_annotation", STEP_RANGE, start_us, 1000.0)
    for index in range(syncs):
        at_us = start_us + 1 + 10 * index
        marker = f"{SYNC_MARKER}train.py|{12 + index}|step"
        yield _event("user_annotation", marker, at_us, 5.0)
        yield _event("cpu_op", "aten::_local_scalar_dense", at_us + 1, 3.0)


def _event(category: str, name: str, start_us: float, duration_us: float) -> TraceEvent:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start_us,
        "dur": duration_us,
        "pid": 1,
        "tid": 1,
    }
