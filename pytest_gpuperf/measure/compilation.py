"""What torch.compile does with a step: graph breaks and recompilations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.compile import CompiledCode
from ..model.finding import FindingKind
from ..model.measurement import Measurement
from ..model.metrics import COMPILED, MeasuringPhase, read_in
from .plan import Deadline, Found, PhaseContext
from .step import Subject


NOTHING_COMPILED: Mapping[str, int] = {metric.name: 0 for metric in COMPILED}


WAITING: Final = frozenset({FindingKind.SYNC, FindingKind.COPY})

COMPILED_NAMES: Final = read_in(MeasuringPhase.COMPILER)


def asked_compiler(at: PhaseContext) -> Measurement:
    """Add what Dynamo says of a warm step; asked last, as that may compile again."""
    until = at.share.until(COMPILED_NAMES)
    found = find_compilation(at.device, at.subject, at.step_ms, until)
    added = found.added_to(at.measurement)
    # Reports name it after the syncs, and before memory and copies.
    known = at.measurement.findings
    syncs = tuple(takewhile(lambda one: one.kind in WAITING, known))
    ordered = (*syncs, *found.findings, *known[len(syncs) :])
    return replace(added, findings=ordered)


def find_compilation(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> Found:
    """Count what Dynamo recorded of the code that a warm step runs.

    If the cap leaves no room for a step, all that this process compiled counts.
    """

    def run() -> None:
        subject.step(*subject.arguments())
        device.synchronize()

    found = device.compiled(run if deadline.leaves(step_ms) else None)
    return Found() if found is None else counted(found)


def counted(found: CompiledCode) -> Found:
    """Return the numbers of what was *found*."""
    if found.forgotten:
        unmeasured = {metric.name: found.forgotten for metric in COMPILED}
        return Found(unmeasured=unmeasured, findings=found.findings)
    exact = {
        metric.name: sum(f.per_step for f in found.findings if metric.name in f.metrics)
        for metric in COMPILED
    }
    return Found(exact=exact, findings=found.findings)
