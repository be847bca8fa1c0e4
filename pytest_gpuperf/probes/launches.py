"""How many launches a step makes on a GPU, and how many kernels they run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from ..devices.protocol import TraceEvent
from ..model.step_metric import KERNELS
from ..model.step_metric import LAUNCHES
from .communication import KERNEL
from .trace import Span
from .trace import Trace
from .trace import correlation_of
from .trace import enclosing
from .trace import parse


LAUNCH: Final = re.compile(r"(?:cuda|cu|hip)(?!\w*HostFunc)\w*Launch\w*")
"""Calls that launch a kernel or a graph; a function of the host is no kernel."""


def count_launches(events: Sequence[TraceEvent]) -> Mapping[str, int]:
    """Count, of the step with most of each, by metric name.

    The launch of a whole CUDA graph is one. A kernel is that of the step whose call
    launched it, whenever the GPU gets to it.
    """
    trace = parse(events)
    launches = [(call, trace.step_at(call.start_us)) for call in _launches(trace)]
    step_of: dict[int | None, int | None] = {
        call.correlation: step for call, step in launches if call.correlation
    }
    return {
        LAUNCHES.name: _most(step for _, step in launches),
        KERNELS.name: _most(step_of.get(number) for number in _launched_by(events)),
    }


def _launches(trace: Trace) -> Iterator[Span]:
    """Give those inside of no other: a call of the runtime makes one of the driver."""
    calls = [call for call in trace.calls if LAUNCH.fullmatch(call.name)]
    for call, around in zip(calls, enclosing(calls, calls), strict=True):
        if not any(_holds(other, call) for other in around):
            yield call


def _holds(outer: Span, inner: Span) -> bool:
    """Whether *inner*, in the middle of *outer*, is the shorter one."""
    return outer.end_us - outer.start_us > inner.end_us - inner.start_us


def _launched_by(events: Sequence[TraceEvent]) -> Iterator[int | None]:
    """Give the number of the call that each kernel was launched by."""
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() == KERNEL:
            yield correlation_of(event)


def _most(steps: Iterable[int | None]) -> int:
    """Return the largest number of those that are of one step; outside of steps is none."""
    counts = Counter(step for step in steps if step is not None)
    return max(counts.values(), default=0)
