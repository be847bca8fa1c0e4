"""Graph breaks and recompilations of a step, as counts and as findings."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from ..devices.base import MeasuringDevice
from ..devices.compile import CompiledCode
from ..devices.compile import GraphBreak
from ..devices.compile import Recompilation
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.metrics import COMPILED
from ..model.metrics import GRAPH_BREAKS
from ..model.metrics import RECOMPILES
from .step import Deadline
from .step import Subject


NOTHING_COMPILED: Mapping[str, int] = {metric.name: 0 for metric in COMPILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Counts by metric name, why there are none, and where each comes from."""

    exact: Mapping[str, int] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def find_compilation(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> Compilation:
    """Count what Dynamo recorded of the code that a warm step runs.

    If the cap leaves no room for a step, all that this process compiled counts.
    """

    def run() -> None:
        subject.step(*subject.arguments())
        device.synchronize()

    found = device.compiled(run if deadline.leaves(step_ms) else None)
    return Compilation() if found is None else counted(found)


def counted(found: CompiledCode) -> Compilation:
    """Return the numbers of what was *found*."""
    findings = tuple(_findings(found))
    if found.forgotten:
        unmeasured = {metric.name: found.forgotten for metric in COMPILED}
        return Compilation(unmeasured=unmeasured, findings=findings)
    exact = {
        GRAPH_BREAKS.name: len(found.graph_breaks),
        RECOMPILES.name: sum(one.times for one in found.recompilations),
    }
    return Compilation(exact=exact, findings=findings)


def _findings(found: CompiledCode) -> Iterator[Finding]:
    yield from map(_broken, found.graph_breaks)
    yield from map(_compiled_again, found.recompilations)


def _broken(graph_break: GraphBreak) -> Finding:
    return Finding(
        kind=FindingKind.BREAK,
        op=None,
        per_step=1,
        location=graph_break.location,
        innermost=graph_break.innermost,
        metrics=(GRAPH_BREAKS.name,),
        reason=graph_break.reason,
    )


def _compiled_again(recompilation: Recompilation) -> Finding:
    refused = "; after so many it runs as plain Python" if recompilation.refused else ""
    return Finding(
        kind=FindingKind.RECOMPILE,
        op=None,
        per_step=recompilation.times,
        location=recompilation.location,
        metrics=(RECOMPILES.name,),
        reason=f"{recompilation.reason}{refused}",
    )
