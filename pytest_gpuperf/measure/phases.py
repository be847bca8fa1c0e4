"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from math import ceil
from operator import attrgetter
from statistics import fmean
from statistics import median
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.machine import granted_cores
from ..devices.preflight import no_garbage_collection
from ..model.environment import Capability
from ..model.measurement import Board
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.measurement import thinned
from ..model.metrics import LOADER_WAIT
from ..model.metrics import PROCESS_MS
from ..model.metrics import SLOPE
from ..model.metrics import SPAN_MS
from ..model.metrics import STEP_MS
from .dataloader import with_loader_wait
from .later_phases import CUT_SHORT
from .later_phases import disturbing_phases
from .step import Deadline
from .step import Follow
from .step import Subject
from .step import nobody
from .time_share import COUNTED_NAMES
from .time_share import TimeShare
from .timing import Round
from .timing import Timing
from .timing import count_per_step
from .timing import slope_of
from .timing import time_round
from .timing import time_rounds
from .timing import time_sentinels
from .timing import unwaited_ns_of
from .warmup import Warmth
from .warmup import clock_under_load
from .warmup import warm_up


PHASE_PATIENCE_SECONDS: Final = 30.0
"""Seconds that a step at least has after it used up a short cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measurement and what the last step returned."""

    measurement: Measurement
    result: object


def measure(  # noqa: PLR0913  what is measured, and for whom
    device: MeasuringDevice,
    subject: Subject,
    *,
    test: str,
    seconds: float,
    asked: Collection[str] = (),
    only_times: bool = False,
    follow: Follow = nobody,
) -> MeasuredStep:
    """Run every phase on *subject* and return its measurement.

    With *only_times* the phases after the timed rounds are left out. *seconds* caps the cost on the device's host clock; phases that no longer fit are
    left out, and their metrics say so. Counts and sizes that are *asked* for, by metric
    name, have up to ``MOST_CAPS`` times as long. *follow* is called with the progress.
    Raises ``PreflightError``, ``StepError`` and whatever the step raises.
    """
    device.preflight()
    subject = subject.prepared(device, test)
    share = TimeShare.of(device.now_ns, seconds, asked)
    # It compiles and allocates, and shows whether the cap has room for anything else.
    first = run_first_step(device, subject)
    if not share.cap.leaves(first.ms):
        measurement = _of_slow_step(device, subject, share, test, first)
        return MeasuredStep(measurement=measurement, result=first.result)
    # Around all phases: a machine that slows down in between shows in the difference.
    before = time_sentinels(device)
    measurement = _phases(device, subject, share, test, follow, only_times=only_times)
    measurement = _witnessed(measurement, before, time_sentinels(device))
    result = subject.run_once() if share.cap.leaves(first.ms) else first.result
    return MeasuredStep(measurement=measurement, result=result)


def _of_slow_step(
    device: MeasuringDevice,
    subject: Subject,
    share: TimeShare,
    test: str,
    first: FirstStep,
) -> Measurement:
    """Add the counts and sizes that are asked for, then time a few more steps.

    The first step used up the cap, so times come last: they matter least here.
    """
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times={STEP_MS.name: Distribution.of([first.ms])},
        unmeasured=device.unmeasurable,
    )
    measurement = disturbing_phases(device, subject, share, measurement, first.ms)
    least = Deadline.after(PHASE_PATIENCE_SECONDS - first.ms / 1e3, device.now_ns)
    patience = max(share.limit, least, key=lambda deadline: deadline.at_ns)
    measurement = _with_slow_step(
        measurement, time_slow_step(device, subject, first, patience)
    )
    if subject.batches is None:
        return measurement
    return measurement.missing({LOADER_WAIT.name: CUT_SHORT})


def _with_slow_step(measurement: Measurement, slow: SlowStep) -> Measurement:
    # ``untouched`` has removed them: the step never ran on the device.
    if not measurement.times:
        return measurement
    unwaited = {} if slow.unwaited_ms is None else {STEP_MS.name: slow.unwaited_ms}
    times = Distribution.of(slow.steps_ms)
    return replace(
        measurement,
        times={**measurement.times, STEP_MS.name: times},
        samples={**measurement.samples, STEP_MS.name: slow.steps_ms},
        dirty=(slow.dirty,),
        unwaited={**measurement.unwaited, **unwaited},
    )


def _phases(  # noqa: PLR0913  what is measured, and for whom
    device: MeasuringDevice,
    subject: Subject,
    share: TimeShare,
    test: str,
    follow: Follow,
    *,
    only_times: bool,
) -> Measurement:
    warmth = warm_up(device, subject, share.warm, follow)
    start = moment_of(device)
    timed_until = share.timed(warmth.slowest_ms)
    timing = time_rounds(device, subject, warmth.step_ms, timed_until, follow)
    sm_mhz = clock_under_load(device, subject, warmth.step_ms, timed_until)
    end = moment_of(device)
    others = others_share(start, end) if waits_for_itself(subject) else None
    core = None if subject.batches else core_slowdown(timing.rounds, end.core_ns)
    measurement = Measurement(
        test=test,
        environment=device.environment(),
        times=_times(timing) | _slope(warmth, timing),
        samples={STEP_MS.name: thinned([r.step_ms for r in timing.rounds])},
        unmeasured=device.unmeasurable,
        missed={SLOPE.name: timing.disturbed} if timing.disturbed else {},
        dirty=tuple(_dirt(timing, warmth.unsteady, others, core)),
        unwaited=_unwaited(timing),
        board=Board(gpu=device.fingerprint(), sm_mhz=sm_mhz),
        round_steps=timing.steps if device.kind.has(Capability.QUEUES) else None,
        remarks=tuple(_remarks(device, timing)),
    )
    if subject.batches is not None:
        waits = [r.loader_wait for r in timing.rounds]
        shares = [wait.percent for wait in waits if wait is not None]
        measurement = with_loader_wait(measurement, subject.batches, shares)
    if only_times:
        return measurement
    if share.asks_for(COUNTED_NAMES):
        until = share.until(COUNTED_NAMES)
        counted = count_per_step(device, subject, warmth.step_ms, until)
        measurement = _with_counted(measurement, counted)
    follow("memory and syncs")
    return disturbing_phases(device, subject, share, measurement, warmth.slowest_ms)


def _with_counted(
    measurement: Measurement, counted: Mapping[str, float] | None
) -> Measurement:
    if counted is None:
        return measurement.missing(dict.fromkeys(COUNTED_NAMES, CUT_SHORT))
    times = {name: Distribution.of([value]) for name, value in counted.items()}
    return replace(measurement, times={**measurement.times, **times})


def _witnessed(
    measurement: Measurement,
    before: Mapping[str, tuple[float, ...]],
    after: Mapping[str, tuple[float, ...]],
) -> Measurement:
    """Add what the sentinels took around a step that has times."""
    if not measurement.times:
        return measurement
    seen = {name: (*before[name], *after[name]) for name in before if name in after}
    sentinels = {name: Distribution.of(times) for name, times in seen.items()}
    return replace(measurement, times={**measurement.times, **sentinels})


def _times(timing: Timing) -> dict[str, Distribution]:
    rounds = timing.rounds
    times = {
        STEP_MS.name: Distribution.of([r.step_ms for r in rounds]),
        PROCESS_MS.name: Distribution.of([r.process_ms for r in rounds]),
    }
    spans = [r.span_ms for r in rounds if r.span_ms is not None]
    if spans:
        times[SPAN_MS.name] = Distribution.of(spans)
    return times


def waits_for_itself(subject: Subject) -> bool:
    """Whether a wait for a core that no other program has is the step's own fault.

    A control group that has used up its quota makes a process wait as well. With a
    loader, its workers are the likelier cause even then.
    """
    return subject.batches is not None or granted_cores() is None


MISMATCH: Final = 0.05
"""Share by which the GPU's events and the host's clock may differ."""


def _remarks(device: MeasuringDevice, timing: Timing) -> Iterator[str]:
    """Say where a round may not show what a training loop takes."""
    yield from device.remarks()
    if not device.kind.has(Capability.QUEUES):
        return
    if timing.steps == 1:
        yield (
            f"{STEP_MS.name} is that of single steps, in which a wait may cost nothing: "
            "--gpuperf-seconds leaves no time for rounds of more"
        )
    spans = [r.span_ms for r in timing.rounds if r.span_ms is not None]
    if not spans:
        return
    wall_ms, span_ms = median(r.step_ms for r in timing.rounds), median(spans)
    if abs(wall_ms - span_ms) > MISMATCH * wall_ms:
        yield (
            f"{SPAN_MS.name} is {span_ms:.4g} ms and {STEP_MS.name} {wall_ms:.4g} ms: "
            "other streams or devices work longer than the current stream, or one of "
            "the clocks is wrong"
        )


def _unwaited(timing: Timing) -> dict[str, float]:
    """Return the median: a round may be disturbed between two looks at a clock."""
    return {STEP_MS.name: median(r.unwaited_ms for r in timing.rounds)}


def _slope(warmth: Warmth, timing: Timing) -> dict[str, Distribution]:
    """Return how the time of a step changes, from the series with more steps."""
    # A warm-up that never became steady is far longer than the timed rounds.
    if timing.disturbed:
        return {}
    if warmth.unsteady is None:
        slope = timing.slope()
    else:
        late = warmth.samples[len(warmth.samples) // 2 :]
        slope = slope_of(late, warmth.group)
    return {} if slope is None else {SLOPE.name: Distribution.of([slope])}


def _dirt(
    timing: Timing, unsteady: str | None, others: float | None, core: float | None
) -> list[str]:
    shares = [r.waiting_share for r in timing.rounds if r.waiting_share is not None]
    return [
        *([unsteady] if unsteady else []),
        *timing.dirty,
        *doubts(shares, others),
        *([f"the core was {core:.0%} slower while the step was timed"] if core else []),
    ]


# Decides whether a run that waited for a core was disturbed by others or by itself.

CONTENTION: Final = 0.05
"""Share of a run's time without a core above which its times do not blame the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """A time, what other programs have computed by then, and the core's undisturbed pace.

    Each of the last two is ``None`` if it is unknown.
    """

    now_ns: int
    others_ns: int | None
    core_ns: int | None = None


def moment_of(device: MeasuringDevice) -> ClockReading:
    """Read all of it from *device*."""
    for _ in range(CORE_READINGS):
        device.core_ns()
    return ClockReading(
        now_ns=device.now_ns(),
        others_ns=device.others_ns(),
        core_ns=device.undisturbed_core_ns(),
    )


def others_share(before: ClockReading, after: ClockReading) -> float | None:
    """Return what others computed in between, as a share of one core."""
    spent_ns = after.now_ns - before.now_ns
    if before.others_ns is None or after.others_ns is None or spent_ns <= 0:
        return None
    return max(0, after.others_ns - before.others_ns) / spent_ns


def doubts(shares: Sequence[float], others: float | None) -> Iterator[str]:
    """Say if a run is doubtful: its rounds waited for a core for these *shares*.

    It is not if no other program used a core. Then the run waited for processes of its
    own, such as the workers of a loader, and would do so on any machine.
    """
    alone = others is not None and others <= CONTENTION
    if shares and fmean(shares) > CONTENTION and not alone:
        yield f"the process waited for a core over {CONTENTION:.0%} of the time"


# Decides whether a neighbour on the core's second thread slowed what counts of a run.

CORE_READINGS: Final = 4
"""Loops before and after the timed rounds, which show what the core can do."""

CORE_SLOWED: Final = 0.2
"""Slowdown of the core above which a run's times do not blame the code.

On a core that nobody shares the loop took up to 15 % longer than its quickest, beside a
neighbour 40 to 50 % (AMD EPYC, 2 cores of a virtual machine, 60 runs of 20 rounds).
"""

COUNTING: Final = 0.1
"""Share of the rounds, the quickest, that a run's time on a CPU is read from."""

OWN_THREADS: Final = 0.05
"""Share of a core that threads of the step itself may take while its core is judged."""


def core_slowdown(rounds: Sequence[Round], undisturbed_ns: int | None) -> float | None:
    """Return by how much a neighbour slowed the rounds that count, if that is much.

    ``None`` if none did, if nobody knows, or if the step's own threads may have done it.
    """
    counting = sorted(rounds, key=attrgetter("step_ms"))
    counting = counting[: 1 + ceil(COUNTING * len(rounds))]
    seen = [r.core_ns for r in counting if r.core_ns is not None]
    if not seen or not undisturbed_ns or any(map(_has_threads, counting)):
        return None
    slowdown = max(seen) / undisturbed_ns - 1
    return slowdown if slowdown > CORE_SLOWED else None


def _has_threads(seen: Round) -> bool:
    return seen.process_ms > (1 + OWN_THREADS) * seen.step_ms


# A step that uses up its time cap: its time must still be known, at least roughly.

WARM_STEPS: Final = 2
"""Steps that are timed after the first, which may have compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStep:
    """The first step: ms, ms without waits for a core, counters before, and result."""

    ms: float
    unwaited_ms: float
    counters: tuple[int, ...]
    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStep:
    """The few steps of a run that had time for no more, ms each.

    ``unwaited_ms`` is their median without waiting for a core. It is ``None`` if they
    still compiled or allocated, as the step may then be quicker than they show.
    """

    steps_ms: tuple[float, ...]
    unwaited_ms: float | None
    dirty: str


def run_first_step(device: MeasuringDevice, subject: Subject) -> FirstStep:
    """Run a step and time it; raise ``StepError`` if it was only started."""
    counters, waiting_ns = device.settling(), device.all_waiting_ns()
    process_ns, start_ns = device.process_ns(), device.now_ns()
    result = subject.run_once()
    device.synchronize()
    wall_ns, process_ns = device.now_ns() - start_ns, device.process_ns() - process_ns
    waited_ns = device.all_waiting_ns()
    return FirstStep(
        ms=wall_ns / 1e6,
        unwaited_ms=unwaited_ns_of(waiting_ns, waited_ns, wall_ns, process_ns) / 1e6,
        counters=counters,
        result=result,
    )


def time_slow_step(
    device: MeasuringDevice, subject: Subject, first: FirstStep, patience: Deadline
) -> SlowStep:
    """Time up to ``WARM_STEPS`` more steps before *patience* ends; else take the first."""
    before = device.settling()
    rounds: list[Round] = []
    device.disturbance()  # what came before the first round is no fault of it
    with no_garbage_collection():
        while len(rounds) < WARM_STEPS and patience.leaves(first.ms):
            rounds.append(time_round(device, subject, 1))
    after, count = device.settling(), 1 + len(rounds)
    left = "1 step, cold" if count == 1 else f"{count} steps"
    unwaited = [r.unwaited_ms for r in rounds] or [first.unwaited_ms]
    is_warm = after == (before if rounds else first.counters)
    return SlowStep(
        steps_ms=tuple(r.step_ms for r in rounds) or (first.ms,),
        unwaited_ms=median(unwaited) if is_warm else None,
        dirty=f"too slow to measure within --gpuperf-seconds, which left room for {left}",
    )
