"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.compile import CompiledCode
from ..model.finding import FindingKind
from ..model.measurement import Measurement
from ..model.metrics import COMPILED
from ..model.run import RunMode
from .memory import MEMORY_NAMES, explained, memory_of_steps
from .plan import (
    COMPILED_NAMES,
    COUNTING_STEPS,
    Deadline,
    Found,
    MeasuredStep,
    MeasurePlan,
    PhaseContext,
    TimeShare,
    UntouchedError,
    cut_short,
    untouched,
)
from .profile import TRACE_NAMES, traced, traced_steps
from .step import Subject
from .timing import (
    LATENCY_NAMES,
    isolated_steps,
    run_first_step,
    slow_steps,
    time_sentinels,
    timed_steps,
    with_sentinels,
    with_times,
)


def measure(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Run every phase on *subject*, or trace it, and return its measurement.

    Phases that no longer fit into the cap are left out, and their metrics say so.
    Raises ``PreflightError``, ``StepError`` and whatever the step raises.
    """
    device.preflight()
    subject = subject.prepared(device, plan.test)
    if plan.mode is RunMode.TRACE:
        return traced(device, subject, plan)
    measured = _in_time(device, subject, plan)
    found = device.together(measured.measurement, subject.run_once)
    if plan.mode is RunMode.RECORD_MEMORY and not device.is_ranked:
        found = explained(device, subject, found, plan.artefacts, root=plan.root)
    return replace(measured, measurement=found)


def _in_time(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Run what the cap has room for: a first step shows what one takes."""
    share = TimeShare.of(plan, device)
    first = run_first_step(device, subject)
    at = PhaseContext(
        device=device,
        subject=subject,
        share=share,
        measurement=plan.begun(device, subject),
        step_ms=first.own_ms,
    )
    if not share.cap.leaves(first.own_ms):
        # The first step used up the cap, so times come last: they matter least here.
        at.measurement = with_times(at, [first.ms])
        at.measurement = later_phases(at)
        return MeasuredStep(measurement=slow_steps(at, first), result=first.result)
    # Around all phases: a machine that slows down in between shows in the difference.
    before = time_sentinels(device)
    at.measurement = timed_steps(at, plan.follow)
    if not plan.only_times:
        plan.follow("memory and syncs")
        at.measurement = later_phases(at)
    found = with_sentinels(at.measurement, before, time_sentinels(device))
    result = subject.run_once() if share.cap.leaves(first.own_ms) else first.result
    return MeasuredStep(measurement=found, result=result)


# The phases after the timed rounds, none of which is read off them.

OPERATIONS_SLOWED: Final = 10
"""Factor by which counting operations may slow a step down."""


def _operations(at: PhaseContext) -> Measurement:
    """Add what the lines of a step run, if there is a moment for that."""
    has_time = at.share.cap.leaves(OPERATIONS_SLOWED * at.step_ms)
    if at.device.is_ranked or not has_time:
        return at.measurement
    operations = at.device.operations(at.subject.step, at.subject.arguments())
    return replace(at.measurement, operations=operations)


SYNCS_FIRST: Final = frozenset({FindingKind.SYNC, FindingKind.COPY})
"""What reports name before what the compiler says."""


def asked_compiler(at: PhaseContext) -> Measurement:
    """Add what Dynamo says of a warm step; asked last, as that may compile again."""
    until = at.share.until(COMPILED_NAMES)
    found = find_compilation(at.device, at.subject, at.step_ms, until)
    added = found.added_to(at.measurement)
    # Reports name it after the syncs, and before memory and copies.
    known = at.measurement.findings
    syncs = tuple(takewhile(lambda one: one.kind in SYNCS_FIRST, known))
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
    return Found() if found is None else counts_of(found)


def counts_of(found: CompiledCode) -> Found:
    """Return the numbers of what was *found*."""
    if found.forgotten:
        unmeasured = {metric.name: found.forgotten for metric in COMPILED}
        return Found(unmeasured=unmeasured, findings=found.findings)
    exact = {
        metric.name: sum(f.per_step for f in found.findings if metric.name in f.metrics)
        for metric in COMPILED
    }
    return Found(exact=exact, findings=found.findings)


Phase = Callable[[PhaseContext], Measurement]
"""Returns the measurement with what it found, or raises ``UntouchedError``."""

# The order is that of disturbance: isolated steps are timed before anything watches, and the
# compiler is asked last, as its question may compile again.
PHASES: Final[Sequence[tuple[frozenset[str], Phase]]] = (
    (LATENCY_NAMES, isolated_steps),
    (MEMORY_NAMES, memory_of_steps),
    (TRACE_NAMES, traced_steps),
    (frozenset(), _operations),
    (COMPILED_NAMES, asked_compiler),
)
"""What each phase reads, in a few more steps, and what adds it."""


def later_phases(at: PhaseContext) -> Measurement:
    """Add what ``PHASES`` read; if the cap leaves no room, what nobody asks for is left out."""
    timed = at.measurement
    at.has_room = at.share.cap.leaves(COUNTING_STEPS * at.step_ms)
    try:
        for metrics, add in PHASES:
            fits = at.leaves_room(metrics)
            at.measurement = add(at) if fits else cut_short(at.measurement, metrics)
    except UntouchedError:
        return untouched(timed)
    return at.measurement
