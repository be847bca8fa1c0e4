"""Hidden syncs: how often a step makes the host wait for the device, and where."""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass

from ..devices.protocol import STEP_RANGE
from ..devices.protocol import TraceEvent
from ..errors import RunError
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.metric import SYNCS
from .allowed import with_allowances
from .trace import parse
from .waits import Cause
from .waits import Wait
from .waits import device_waits
from .waits import marked_waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncs:
    """``per_step`` is the worst step's count; findings stand longest wait first.

    What is allowed is found and not counted.
    """

    per_step: int
    findings: tuple[Finding, ...]


def find_syncs(events: Sequence[TraceEvent]) -> Syncs:
    """Count the syncs in the steps of a profiler's trace and name their causes.

    Only what starts inside a ``STEP_RANGE`` counts, on whatever thread: autograd's
    threads sync too, while the profiler's own syncs and those between steps lie
    outside. A trace with calls into CUDA or HIP shows the waits themselves. In one
    without, from a CPU, each ``SYNC_MARKER`` range stands for a wait that a GPU would
    have made; nothing waited, so nothing was blocked. A sync in any step counts;
    blocked time is the mean over the steps.

    Raises ``RunError`` where the trace holds no step, ``StepError`` where a comment
    allows a sync and says not why.
    """
    trace = parse(events)
    if not trace.steps:
        msg = (
            f"the profiler's trace of {len(events)} events holds no {STEP_RANGE} range, "
            "expected one a step: start and stop no other profiler inside the step"
        )
        raise RunError(msg)
    seen = device_waits(trace) if trace.calls else marked_waits(trace)
    waits = with_allowances(seen, trace.allowances)
    by_cause: dict[Cause, list[Wait]] = defaultdict(list)
    for wait in waits:
        by_cause[wait.cause].append(wait)
    findings = [
        _finding(cause, group, len(trace.steps)) for cause, group in by_cause.items()
    ]
    counted = [wait for wait in waits if wait.cause.allowed is None]
    return Syncs(
        per_step=_most_in_a_step(counted), findings=tuple(sorted(findings, key=_order))
    )


def _finding(cause: Cause, waits: Sequence[Wait], steps: int) -> Finding:
    return Finding(
        kind=FindingKind.SYNC,
        op=cause.op,
        api=cause.api,
        per_step=_most_in_a_step(waits),
        blocked_ms=sum(wait.blocked_us for wait in waits) / steps / 1e3,
        location=cause.location,
        innermost=cause.innermost,
        metrics=() if cause.allowed else (SYNCS.name,),
        allowed=cause.allowed,
    )


def _most_in_a_step(waits: Iterable[Wait]) -> int:
    return max(Counter(wait.step for wait in waits).values(), default=0)


def _order(finding: Finding) -> tuple[float, int, str]:
    return -finding.blocked_ms, -finding.per_step, f"{finding.location} {finding.op}"
