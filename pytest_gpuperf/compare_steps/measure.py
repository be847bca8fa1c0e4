"""Two steps side by side: their times in turns, then what each does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ..devices.base import Device, EmulatingDevice, MeasuringDevice, with_clock
from ..measure.emulated import audit
from ..measure.phases import later_phases
from ..measure.plan import (
    Deadline,
    Follow,
    MeasurePlan,
    PhaseContext,
    TimeShare,
    cut_short,
    nobody,
)
from ..measure.profile import PROFILED_STEPS
from ..measure.step import Subject
from ..model.ab import AbResult, Comparison, Training
from ..model.measurement import Measurement
from ..model.metrics import METRICS, PEAK_ALLOCATED, PEAK_RESERVED, SPEEDUP
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two steps, and what is to be known of them.

    ``seconds`` caps the cost. ``tolerance`` is the change of time that is never blamed,
    ``detect`` the one that never passes for the same, both ratios.
    """

    pair: Pair
    test: str
    seconds: float
    tolerance: float
    detect: float


def compare_sides(
    device: Device, question: Question, follow: Follow = nobody
) -> ComparedCall:
    """Compare two steps in time and in all that is counted; *follow* gets the progress.

    Raises ``UsageError``, ``PreflightError``, ``StepError`` and whatever a step raises.
    """
    trained = begin(question.pair)
    starts = starts_of(question.pair)
    if device.emulating is not None:
        compared = _compared(None, *_audited(device.emulating, question), trained)
    else:
        measured = _measured(with_clock(device), question, follow)
        compared = _compared(*measured, trained)
    refuse_other_training(question.pair, *starts)
    return compared


def _measured(
    device: MeasuringDevice, question: Question, follow: Follow
) -> tuple[AbResult, Measurement, Measurement]:
    """Time both sides in turns, then count what each does by itself."""
    own = question.pair.before, question.pair.after
    before, after = sides = prepared(device, *own, question.test)
    deadline = Deadline.after(question.seconds, device.own_now_ns)
    time = compare_steps(
        device,
        *sides,
        seconds=TIMED * question.seconds,
        tolerance=question.tolerance,
        detect=question.detect,
        follow=follow,
    )
    test = question.test
    first = _counted(device, before, f"{test}#before", time.before_ms, deadline)
    first = of_one_side(device, first, *own)
    second = _counted(device, after, f"{test}#after", time.after_ms, deadline)
    return time, first, of_one_side(device, second, *reversed(own))


def prepared(
    device: MeasuringDevice, before: Subject, after: Subject, test: str
) -> tuple[Subject, Subject]:
    """Return both steps of *test* as *device* is to run them."""
    return (
        replace(before, step=device.prepare(before.step, f"{test}#before")),
        replace(after, step=device.prepare(after.step, f"{test}#after")),
    )


def _audited(
    device: EmulatingDevice, question: Question
) -> tuple[Measurement, Measurement]:
    before, after = (
        # Only the measurement is kept: the result of a side must be freed before the
        # memory of the other one is watched.
        audit(
            device,
            side,
            MeasurePlan(test=f"{question.test}#{name}", seconds=question.seconds / 2),
        ).measurement
        for name, side in (
            ("before", question.pair.before),
            ("after", question.pair.after),
        )
    )
    return before, after


def _counted(
    device: MeasuringDevice,
    side: Subject,
    test: str,
    step_ms: float | None,
    deadline: Deadline,
) -> Measurement:
    share = TimeShare(cap=deadline, limit=deadline, wall=deadline)
    at = PhaseContext.of(device, side, test, share, step_ms or 0.0)
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
