"""Two steps side by side: their times in turns, then what each does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from ..devices.pretend.device import PretendDevice
from ..devices.protocol import Device
from ..model.comparison import Comparison
from ..model.comparison import Sides
from ..model.measurement import Measurement
from ..model.metric import METRICS
from ..model.metric import SPEEDUP
from ..model.metric import limited_by
from ..probes.audit import audit
from ..probes.deadline import Deadline
from ..probes.following import Follow
from ..probes.following import nobody
from ..probes.phases import cut_short
from ..probes.phases import disturbing_phases
from ..probes.profiling import PROFILED_STEPS
from ..probes.subject import Subject
from .beginning import Pair
from .beginning import begin
from .beside import of_one_side
from .quads import compare_steps


TIMED: Final = 0.7
"""Share of the time cap that the steps may take turns for; the rest is for counting."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSides:
    """What both showed, and ``after`` by itself."""

    sides: Sides
    after: Measurement


def compare_sides(
    device: Device | PretendDevice, question: Question, follow: Follow = nobody
) -> ComparedSides:
    """Compare two steps in time and in all that can be counted; *follow* hears how far.

    Raises ``UsageError``, ``PreflightError``, ``StepError`` and whatever a step raises.
    """
    trained = begin(question.pair)
    if isinstance(device, PretendDevice):
        before, after = _audited(device, question)
        return _compared(None, before, after, trained)
    sides = _prepared(device, question)
    deadline = Deadline.after(question.seconds, device.now_ns)
    time = compare_steps(
        device,
        *sides,
        seconds=TIMED * question.seconds,
        tolerance=question.tolerance,
        detect=question.detect,
        follow=follow,
    )
    names, pair = ("before", "after"), (question.pair.before, question.pair.after)
    before, after = (
        of_one_side(
            device,
            _counted(device, side, f"{question.test}#{name}", step_ms, deadline),
            own,
            other,
        )
        for side, name, step_ms, own, other in zip(
            sides,
            names,
            (time.before_ms, time.after_ms),
            pair,
            reversed(pair),
            strict=True,
        )
    )
    return _compared(time, before, after, trained)


def _prepared(device: Device, question: Question) -> tuple[Subject, Subject]:
    before, after = question.pair.before, question.pair.after
    return (
        replace(before, step=device.prepare(before.step, f"{question.test}#before")),
        replace(after, step=device.prepare(after.step, f"{question.test}#after")),
    )


def _audited(
    device: PretendDevice, question: Question
) -> tuple[Measurement, Measurement]:
    before, after = (
        # what a side returns is let go before the other one's memory is watched
        audit(
            device, side, test=f"{question.test}#{name}", seconds=question.seconds / 2
        ).measurement
        for name, side in (
            ("before", question.pair.before),
            ("after", question.pair.after),
        )
    )
    return before, after


def _counted(
    device: Device,
    side: Subject,
    test: str,
    step_ms: float | None,
    deadline: Deadline,
) -> Measurement:
    measurement = Measurement(
        test=test, environment=device.environment(), unmeasured=device.unmeasurable
    )
    if step_ms is None or not deadline.leaves(step_ms * PROFILED_STEPS):
        return cut_short(measurement)
    return disturbing_phases(device, side, deadline, measurement, step_ms)


def _compared(
    time: Comparison | None, before: Measurement, after: Measurement, trained: str
) -> ComparedSides:
    unmeasured = _unmeasured(before, after)
    sides = Sides(
        time=None if SPEEDUP.name in unmeasured else time,
        before=before.exact,
        after=after.exact,
        unmeasured=unmeasured,
        training=trained,
    )
    return ComparedSides(sides=sides, after=after)


def _unmeasured(before: Measurement, after: Measurement) -> Mapping[str, str]:
    """Say why each number is missing: of one that was missed, not why others cannot be."""
    reasons = {**before.unmeasured, **after.unmeasured}
    for missed, reason in {**before.missed, **after.missed}.items():
        alike = limited_by(METRICS[missed].budget or missed)
        reasons |= dict.fromkeys((missed, *(m.name for m in alike)), reason)
    return {
        name: reason
        for name, reason in reasons.items()
        if name in METRICS and not (name in before.exact and name in after.exact)
    }
