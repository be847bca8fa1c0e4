"""How long a step compiles before it is warm, with empty caches and with filled ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..devices.base import MeasuringDevice
from ..model.compile_metrics import COMPILE_S
from ..model.compile_metrics import COMPILE_TIMES
from ..model.compile_metrics import COMPILE_WARM_S
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.metric import Metric
from .phases import MeasuredStep
from .step import Subject
from .timing import unwaited_ns_of


MOST_COMPILING: Final = 10
"""Steps that may compile before it is said that each one does."""

UNCOMPILED_STEP: Final = "nothing was compiled: the step uses no torch.compile, or has run before gpuperf(step)"

STILL_COMPILING: Final = f"each of the first {MOST_COMPILING} steps compiled again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTime:
    """What compiling took in the first steps, and without waits for a core, in seconds.

    Without one, ``unmeasured`` says why the step has none, ``missed`` why this run has.
    """

    seconds: float | None = None
    unwaited_s: float = 0.0
    unmeasured: str = ""
    missed: str = ""

    def added_to(
        self, measurement: Measurement, metric: Metric = COMPILE_S
    ) -> Measurement:
        """Return *measurement* with this as its *metric*."""
        if self.unmeasured:
            names = [metric.name for metric in COMPILE_TIMES]
            return measurement.lacking(dict.fromkeys(names, self.unmeasured))
        if self.seconds is None:
            return measurement.missing({metric.name: self.missed})
        times = {metric.name: Distribution.of([self.seconds])}
        return replace(
            measurement,
            times={**measurement.times, **times},
            samples={**measurement.samples, metric.name: (self.seconds,)},
            unwaited={**measurement.unwaited, metric.name: self.unwaited_s},
        )


def time_compiling(
    device: MeasuringDevice, subject: Subject, test: str, caches: Path
) -> CompileTime:
    """Run the first steps of *subject*, until one compiles nothing, and time the compiler.

    It keeps what it makes in the folder *caches*, which may have it from another process.
    Raises ``PreflightError``, ``StepError`` and whatever the step raises.
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
                return _between(before, Clocks.of(device, compiled_s))
            last_s = now_s
    return CompileTime(missed=STILL_COMPILING)


def compile_again(
    device: MeasuringDevice, subject: Subject, test: str, caches: Path | None
) -> MeasuredStep:
    """Compile with filled *caches*, and measure nothing else; without any, run a step."""
    measurement = Measurement(test=test, environment=device.environment())
    if caches is not None:
        found = time_compiling(device, subject, test, caches)
        measurement = found.added_to(measurement, COMPILE_WARM_S)
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


def _between(before: Clocks, after: Clocks) -> CompileTime:
    seconds = after.compiled_s - before.compiled_s
    if seconds <= 0:
        return CompileTime(unmeasured=UNCOMPILED_STEP)
    wall_ns = after.now_ns - before.now_ns
    unwaited_ns = unwaited_ns_of(
        before.waiting_ns,
        after.waiting_ns,
        wall_ns,
        after.process_ns - before.process_ns,
    )
    # The steps' own part is small beside it, and belongs to what is left either way.
    waited_s = (wall_ns - unwaited_ns) / 1e9
    return CompileTime(seconds=seconds, unwaited_s=max(0.0, seconds - waited_s))
