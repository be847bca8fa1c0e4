"""Two steps side by side: their times in turns, then what each does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..devices.base import Device, EmulatingDevice, MeasuringDevice, with_clock
from ..judge.verdict import noticed, tolerated
from ..measure.emulated import audit
from ..measure.phases import later_phases
from ..measure.plan import Deadline, MeasurePlan, PhaseContext, TimeShare, cut_short
from ..measure.profile import PROFILED_STEPS
from ..measure.step import Subject
from ..model.ab import AbResult, Comparison, Training
from ..model.budget import Tolerance
from ..model.measurement import Measurement
from ..model.metrics import METRICS, PEAK_ALLOCATED, PEAK_RESERVED, SPEEDUP, STEP_MS
from ..model.run import ComparedCall
from .interleave import compare_steps
from .isolation import Pair, addresses_of
from .same_training import begin, refuse_other_training, starts_of


# The first steps of both sides: are these two that can be compared?

# Memory of the other side while one is measured: the allocator counts both together.

SHARED_CACHE: Final = (
    "both sides share the cache of the allocator: measure the step by itself, with "
    "gpuperf(step)"
)


def of_one_side(
    device: MeasuringDevice, measurement: Measurement, own: Subject, other: Subject
) -> Measurement:
    """Subtract from *measurement*, of *own*, what only *other* keeps between its steps.

    It is found as in ``isolation``. What neither is seen to use counts for both.
    """
    lent = device.blocks()
    if not lent or PEAK_ALLOCATED.name not in measurement.exact:
        return measurement
    others = addresses_of(other.step, other.setup) - addresses_of(own.step, own.setup)
    held = [lent[address] for address in others if address in lent]
    exact = dict(measurement.exact)
    exact[PEAK_ALLOCATED.name] -= sum(held)
    # Segments may contain blocks of both sides, so reserved bytes belong to neither.
    exact.pop(PEAK_RESERVED.name, None)
    lacking = measurement.lacking({PEAK_RESERVED.name: SHARED_CACHE})
    return replace(lacking, exact=exact)


TIMED: Final = 0.7
"""Share of the time cap for the steps in turns; the rest is for counting."""


def compare_sides(
    device: Device, pair: Pair, plan: MeasurePlan, tolerance: Tolerance
) -> ComparedCall:
    """Compare two steps in time and in all that is counted.

    Raises ``UsageError``, ``PreflightError``, ``StepError`` and whatever a step raises.
    """
    trained = begin(pair)
    starts = starts_of(pair)
    if device.emulating is not None:
        compared = _compared(None, *_audited(device.emulating, pair, plan), trained)
    else:
        measured = _measured(with_clock(device), pair, plan, tolerance)
        compared = _compared(*measured, trained)
    refuse_other_training(pair, *starts)
    return compared


def _measured(
    device: MeasuringDevice, pair: Pair, plan: MeasurePlan, tolerance: Tolerance
) -> tuple[AbResult, Measurement, Measurement]:
    """Time both sides in turns, then count what each does by itself."""
    own = pair.before, pair.after
    before, after = sides = prepared(device, *own, plan.test)
    deadline = Deadline.after(plan.seconds, device.own_now_ns)
    time = compare_steps(
        device,
        *sides,
        seconds=TIMED * plan.seconds,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
        follow=plan.follow,
    )
    first = _counted(device, before, _side(plan, "before"), time.before_ms, deadline)
    first = of_one_side(device, first, *own)
    second = _counted(device, after, _side(plan, "after"), time.after_ms, deadline)
    return time, first, of_one_side(device, second, *reversed(own))


def _side(plan: MeasurePlan, name: str) -> MeasurePlan:
    """Return the half of *plan* for one of both sides."""
    return MeasurePlan(test=f"{plan.test}#{name}", seconds=plan.seconds / 2)


def prepared(
    device: MeasuringDevice, before: Subject, after: Subject, test: str
) -> tuple[Subject, Subject]:
    """Return both steps of *test* as *device* is to run them."""
    return (
        replace(before, step=device.prepare(before.step, f"{test}#before")),
        replace(after, step=device.prepare(after.step, f"{test}#after")),
    )


def _audited(
    device: EmulatingDevice, pair: Pair, plan: MeasurePlan
) -> tuple[Measurement, Measurement]:
    # Only the measurement is kept: the result of a side must be freed before the memory
    # of the other one is watched.
    before = audit(device, pair.before, _side(plan, "before")).measurement
    return before, audit(device, pair.after, _side(plan, "after")).measurement


def _counted(
    device: MeasuringDevice,
    side: Subject,
    plan: MeasurePlan,
    step_ms: float | None,
    deadline: Deadline,
) -> Measurement:
    at = PhaseContext(
        device=device,
        subject=side,
        share=TimeShare(cap=deadline, limit=deadline, wall=deadline),
        measurement=plan.begun(device, side),
        step_ms=step_ms or 0.0,
    )
    if step_ms is None or not deadline.leaves(step_ms * PROFILED_STEPS):
        return cut_short(at.measurement)
    return later_phases(at)


def _compared(
    time: AbResult | None,
    before: Measurement,
    after: Measurement,
    trained: Training | None,
) -> ComparedCall:
    unmeasured = _unmeasured(before, after)
    sides = Comparison(
        time=None if SPEEDUP.name in unmeasured else time,
        before=before.exact,
        after=after.exact,
        unmeasured=unmeasured,
        training=trained,
    )
    return ComparedCall(sides=sides, after=after)


def _unmeasured(before: Measurement, after: Measurement) -> Mapping[str, str]:
    """Say why each number is missing."""
    unmeasured = {**before.unmeasured, **after.unmeasured}
    reasons = {**unmeasured, **before.missed, **after.missed}
    return {
        name: reason
        for name, reason in reasons.items()
        if name in METRICS and not (name in before.exact and name in after.exact)
    }
