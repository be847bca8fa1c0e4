"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..devices.base import MeasuringDevice
from ..model.measurement import Measurement
from ..model.run import RunMode
from .compilation import COMPILED_NAMES, asked_compiler
from .memory import MEMORY_NAMES, explained, memory_of_steps
from .plan import (
    LaterPhase,
    MeasuredStep,
    MeasurePlan,
    PhaseContext,
    TimeShare,
    UntouchedError,
    cut_short,
    untouched,
)
from .profile import TRACE_NAMES, traced_steps
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
    """Run every phase on *subject* and return its measurement.

    Phases that no longer fit into the cap are left out, and their metrics say so.
    Raises ``PreflightError``, ``StepError`` and whatever the step raises.
    """
    device.preflight()
    subject = subject.prepared(device, plan.test)
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

LEAST_COMPILED_STEPS: Final = 2
"""Steps that counts and sizes need at least: one for memory, one for the trace."""

OPERATIONS_SLOWED: Final = 10
"""Factor by which counting operations may slow a step down."""


def _operations(at: PhaseContext) -> Measurement:
    """Add what the lines of a step run, if there is a moment for that."""
    operations = at.device.operations(at.subject.step, at.subject.arguments())
    return replace(at.measurement, operations=operations)


# The order is that of disturbance: isolated steps are timed before anything watches, and the
# compiler is asked last, as its question may compile again.
PHASES: Final = (
    LaterPhase(
        reads=LATENCY_NAMES,
        run=isolated_steps,
        has_time=lambda at, _: at.share.cap.reserving(
            LEAST_COMPILED_STEPS * at.step_ms
        ).leaves(at.step_ms),
    ),
    LaterPhase(reads=MEMORY_NAMES, run=memory_of_steps),
    LaterPhase(reads=TRACE_NAMES, run=traced_steps),
    LaterPhase(
        reads=frozenset(),
        run=_operations,
        is_wanted=lambda at: (
            not at.device.is_ranked
            and at.share.cap.leaves(OPERATIONS_SLOWED * at.step_ms)
        ),
        has_time=lambda *_: True,
    ),
    LaterPhase(reads=COMPILED_NAMES, run=asked_compiler),
)


def later_phases(at: PhaseContext) -> Measurement:
    """Add what ``PHASES`` read; if the cap leaves no room, what nobody asks for is left out."""
    timed = at.measurement
    at.has_room = at.share.cap.leaves(LEAST_COMPILED_STEPS * at.step_ms)
    try:
        for phase in PHASES:
            if phase.is_wanted(at):
                has_time = phase.has_time(at, phase.reads)
                at.measurement = (
                    phase.run(at)
                    if has_time
                    else cut_short(at.measurement, phase.reads)
                )
    except UntouchedError:
        return untouched(timed)
    return at.measurement
