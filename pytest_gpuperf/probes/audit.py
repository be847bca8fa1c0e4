"""The order of a measurement on a device without a clock: audit a few steps."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..devices.pretend.device import AuditedStep
from ..devices.pretend.device import PretendDevice
from ..devices.pretend.record import Totals
from ..devices.pretend.record import Unjudged
from ..model.finding import Location
from ..model.measurement import Measurement
from ..model.memory_metric import PREDICTED
from ..model.metric import BLOCKING_COPIES
from ..model.metric import D2H_BYTES
from ..model.metric import DEVICE_SYNCS
from ..model.metric import H2D_BYTES
from ..model.metric import METRICS
from ..model.metric import PAGEABLE_COPIES
from ..model.metric import SYNCS
from ..model.step_metric import COMPILED
from ..model.step_metric import FLOPS
from ..model.step_metric import OPS
from .audited import counted_syncs
from .audited import findings_of
from .compiled import NOTHING_COMPILED
from .deadline import Deadline
from .diagnosis import diagnosis_of_counts
from .phases import Measured
from .phases import cut_short
from .phases import untouched
from .predicted import STEPS as PREDICTED_STEPS
from .predicted import Prediction
from .predicted import predict_memory
from .subject import Subject


AUDITED_STEPS: Final = 3

AS_EAGER: Final = (
    "the pretend device runs compiled code as eager code: add --gpuperf-device=cpu"
)

COMPILER: Final = "torch.compile"

_COMPILED: Final = tuple(metric.name for metric in COMPILED)

MOST_NAMED: Final = 3
"""Operations that a reason names; the others are counted."""


def audit(
    device: PretendDevice, subject: Subject, *, test: str, seconds: float
) -> Measured:
    """Run one step, which makes what is made once, then watch memory, then audit.

    A count is that of the step with most of it. *seconds* caps the cost on the host's
    clock. Raises ``StepError`` and whatever the step raises.
    """
    deadline = Deadline.after(seconds, device.now_ns)
    prediction = None
    with device.watching_memory() as memory:
        start_ns = device.now_ns()
        results = [memory.recorded_step(subject.run_once)]
        first_ms = (device.now_ns() - start_ns) / 1e6
        if deadline.leaves((PREDICTED_STEPS + 1) * first_ms):
            results.clear()  # a loop would have let it go, and what it holds
            prediction = predict_memory(memory, subject, device.root)
    steps: list[AuditedStep] = []
    while len(steps) < AUDITED_STEPS and (deadline.leaves(first_ms) or not results):
        steps.append(device.audit(subject.step, subject.arguments()))
        results = [steps[-1].result]
    measurement = Measurement(
        test=test, environment=device.environment(), unmeasured=device.unmeasurable
    )
    if not steps:
        return Measured(measurement=cut_short(measurement), result=results[0])
    measurement = _audited(device, measurement, steps)
    diagnosis = diagnosis_of_counts(measurement.findings)
    measurement = replace(measurement, diagnosis=diagnosis)
    if measurement.exact:
        measurement = _with_memory(measurement, prediction)
    return Measured(measurement=measurement, result=results[0])


def _with_memory(
    measurement: Measurement, prediction: Prediction | None
) -> Measurement:
    """Add what was predicted, or that there was no time to."""
    if prediction is None:
        return _missed(measurement)
    return replace(
        measurement,
        exact={**measurement.exact, **prediction.exact},
        unmeasured={**measurement.unmeasured, **prediction.unmeasured},
        findings=(*measurement.findings, *prediction.findings),
        remarks=(*measurement.remarks, *prediction.remarks),
    )


def _missed(measurement: Measurement) -> Measurement:
    short = cut_short(measurement)
    names = {metric.name for metric in PREDICTED}
    missed = {name: why for name, why in short.missed.items() if name in names}
    return replace(measurement, missed=missed)


def _audited(
    device: PretendDevice, measurement: Measurement, steps: Sequence[AuditedStep]
) -> Measurement:
    if not any(step.audit.touched_gpu for step in steps):
        return untouched(measurement)
    unjudged = [
        *device.made_unjudged,
        *(missing for step in steps for missing in step.audit.not_judged),
    ]
    measurement = replace(
        measurement,
        findings=findings_of(steps),
        remarks=(*_as_eager(device), *_without_values(device), *_differing(steps)),
    )
    if unjudged:
        reason = _why_unjudged(unjudged, device.root)
        return replace(measurement, unmeasured=dict.fromkeys(METRICS, reason))
    if any(taken.op == COMPILER for taken in device.as_eager):
        unmeasured = {**measurement.unmeasured, **dict.fromkeys(_COMPILED, AS_EAGER)}
        return replace(measurement, exact=_most(steps), unmeasured=unmeasured)
    return replace(measurement, exact={**_most(steps), **NOTHING_COMPILED})


def _most(steps: Sequence[AuditedStep]) -> dict[str, int]:
    counts = [_counts(step) for step in steps]
    return {name: max(count[name] for count in counts) for name in counts[0]}


def _counts(step: AuditedStep) -> Mapping[str, int]:
    totals: Totals = step.audit.totals
    return {
        SYNCS.name: counted_syncs(step),
        PAGEABLE_COPIES.name: totals.pageable_copies,
        BLOCKING_COPIES.name: totals.blocking_copies,
        H2D_BYTES.name: totals.h2d_bytes,
        D2H_BYTES.name: totals.d2h_bytes,
        DEVICE_SYNCS.name: totals.device_syncs,
        OPS.name: totals.ops,
        FLOPS.name: totals.flops,
    }


def _differing(steps: Sequence[AuditedStep]) -> Iterable[str]:
    """Say which gated counts differ from step to step: the largest is the step's."""
    counts = [_counts(step) for step in steps]
    for name in counts[0]:
        values = [count[name] for count in counts]
        if METRICS[name].gated and len(set(values)) > 1:
            seen = ", ".join(map(str, values))
            yield f"{name} differs from step to step: {seen}; the largest counts"


def _as_eager(device: PretendDevice) -> Iterable[str]:
    ops = dict.fromkeys(compiled.op for compiled in device.as_eager)
    return (f"{op}: judged as eager code" for op in ops)


def _without_values(device: PretendDevice) -> Iterable[str]:
    return () if device.gave_up_values is None else (device.gave_up_values,)


def _why_unjudged(unjudged: Sequence[Unjudged], root: str) -> str:
    """Name what only a GPU can judge; a metric that it could move has no number."""
    named = list(
        dict.fromkeys(
            f"{missing.op}{_place(missing.site.location, root)}: {missing.reason}"
            for missing in unjudged
        )
    )
    left = len(named) - MOST_NAMED
    more = f"; and {left} more" if left > 0 else ""
    return f"only a GPU can judge {'; '.join(named[:MOST_NAMED])}{more}"


def _place(location: Location | None, root: str) -> str:
    if location is None:
        return ""
    return f" ({location.file.removeprefix(root).lstrip('/')}:{location.line})"
