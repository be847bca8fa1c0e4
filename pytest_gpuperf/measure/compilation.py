"""What torch.compile does with a step: graph breaks, recompilations, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.compile import CompiledCode
from ..model.compile_metrics import COMPILE_S
from ..model.compile_metrics import COMPILE_TIMES
from ..model.compile_metrics import COMPILE_WARM_S
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.metric import MeasuringPhase
from ..model.metric import Metric
from ..model.metrics import COMPILED
from ..model.metrics import read_in
from .bottleneck import WAITING_FINDINGS
from .plan import Deadline
from .plan import Found
from .plan import MeasuredStep
from .plan import MeasurePlan
from .plan import PhaseContext
from .step import Subject
from .timing import unwaited_ns_of


NOTHING_COMPILED: Mapping[str, int] = {metric.name: 0 for metric in COMPILED}


COMPILED_NAMES: Final = read_in(MeasuringPhase.COMPILER)


def asked_compiler(at: PhaseContext) -> Measurement:
    """Add what Dynamo says of a warm step; asked last, as that may compile again."""
    until = at.share.until(COMPILED_NAMES)
    found = find_compilation(at.device, at.subject, at.step_ms, until)
    added = found.added_to(at.measurement)
    # Reports name it after the waits, and before memory and copies.
    known = at.measurement.findings
    waits = tuple(takewhile(lambda one: one.kind in WAITING_FINDINGS, known))
    ordered = (*waits, *found.findings, *known[len(waits) :])
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


# How long a step compiles before it is warm, with empty caches and with filled ones.

MOST_COMPILING: Final = 10
"""Steps that may compile before it is said that each one does."""

UNCOMPILED_STEP: Final = "nothing was compiled: the step uses no torch.compile, or has run before gpuperf(step)"

STILL_COMPILING: Final = f"each of the first {MOST_COMPILING} steps compiled again"


def time_compiling(
    device: MeasuringDevice,
    subject: Subject,
    test: str,
    caches: Path,
    metric: Metric = COMPILE_S,
) -> Found:
    """Run the first steps of *subject*, until one compiles nothing, and time the compiler.

    It keeps what it makes in the folder *caches*, which may have it from another process:
    *metric* says whether it does. Raises ``PreflightError``, ``StepError`` and whatever
    the step raises.
    """
    device.preflight()
    subject = subject.prepared(device, test)
    with device.compiling(caches) as compiled_s:
        before = Clocks.of(device, compiled_s)
        last_s = before.compiled_s
        for _ in range(MOST_COMPILING):
            subject.run_once()
            device.synchronize()
            now_s = compiled_s()
            if now_s == last_s:
                return _between(before, Clocks.of(device, compiled_s), metric.name)
            last_s = now_s
    return Found(missed={metric.name: STILL_COMPILING})


def compile_again(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Compile with filled caches, and measure nothing else; without any, run a step."""
    test = plan.test
    measurement = Measurement(test=test, environment=device.environment())
    if plan.caches is not None:
        found = time_compiling(device, subject, test, plan.caches, COMPILE_WARM_S)
        measurement = found.added_to(measurement)
    result = subject.prepared(device, test).run_once()
    return MeasuredStep(measurement=measurement, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Seconds that were compiled, and the clocks of the process, in nanoseconds."""

    compiled_s: float
    now_ns: int
    process_ns: int
    waiting_ns: int | None

    @classmethod
    def of(cls, device: MeasuringDevice, compiled_s: Callable[[], float]) -> Clocks:
        """Read them all."""
        return cls(
            compiled_s=compiled_s(),
            now_ns=device.now_ns(),
            process_ns=device.process_ns(),
            waiting_ns=device.all_waiting_ns(),
        )


def _between(before: Clocks, after: Clocks, name: str) -> Found:
    """Return what compiling took in between, and without what was waited for a core."""
    seconds = after.compiled_s - before.compiled_s
    if seconds <= 0:
        names = [metric.name for metric in COMPILE_TIMES]
        return Found(unmeasured=dict.fromkeys(names, UNCOMPILED_STEP))
    wall_ns = after.now_ns - before.now_ns
    unwaited_ns = unwaited_ns_of(
        before.waiting_ns,
        after.waiting_ns,
        wall_ns,
        after.process_ns - before.process_ns,
    )
    # The steps' own part is small beside it, and belongs to what is left either way.
    waited_s = (wall_ns - unwaited_ns) / 1e9
    return Found(
        times={name: Distribution.of([seconds])},
        samples={name: (seconds,)},
        unwaited={name: max(0.0, seconds - waited_s)},
    )
