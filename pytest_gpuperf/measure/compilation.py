"""Graph breaks and recompilations of a step, as counts and as findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from ..devices.base import MeasuringDevice
from ..devices.compile import CompiledCode
from ..model.finding import Finding
from ..model.metrics import COMPILED
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
    if found.forgotten:
        unmeasured = {metric.name: found.forgotten for metric in COMPILED}
        return Compilation(unmeasured=unmeasured, findings=found.findings)
    exact = {
        metric.name: sum(f.per_step for f in found.findings if metric.name in f.metrics)
        for metric in COMPILED
    }
    return Compilation(exact=exact, findings=found.findings)
