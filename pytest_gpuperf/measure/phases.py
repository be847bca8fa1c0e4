"""The order of one measurement: each phase disturbs what an earlier one measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter
from statistics import fmean, median
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.preflight import no_garbage_collection
from ..devices.process_time import granted_cores
from ..model.environment import Capability
from ..model.measurement import Board, Distribution, Measurement, location, thinned
from ..model.metrics import LOADER_WAIT, STEP_MS
from ..model.run import RunMode
from .compilation import COMPILED_NAMES, asked_compiler
from .dataloader import with_loader_wait
from .memory import MEMORY_NAMES, explained, memory_of_steps
from .plan import (
    CUT_SHORT,
    Deadline,
    Found,
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
    Round,
    Timing,
    isolated_steps,
    time_round,
    time_rounds,
    time_sentinels,
    unwaited_ns_of,
)
from .warmup import clock_under_load, warm_up


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
    found = _with_rates(found, subject).lacking(plan.why_none(device, subject))
    return replace(measured, measurement=found)


def _in_time(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Run what the cap has room for: a first step shows what one takes."""
    share = TimeShare.of(plan, device)
    # It compiles and allocates as well.
    first = run_first_step(device, subject)
    at = PhaseContext.of(device, subject, plan.test, share, first.own_ms)
    if not share.cap.leaves(first.own_ms):
        return MeasuredStep(measurement=_of_slow_step(at, first), result=first.result)
    # Around all phases: a machine that slows down in between shows in the difference.
    before = time_sentinels(device)
    found = _rounds(at, plan)
    if not plan.only_times:
        plan.follow("memory and syncs")
        found = later_phases(at)
    found = _with_sentinels(found, before, time_sentinels(device))
    result = subject.run_once() if share.cap.leaves(first.own_ms) else first.result
    return MeasuredStep(measurement=found, result=result)


def _rounds(at: PhaseContext, plan: MeasurePlan) -> Measurement:
    """Warm up, time rounds, and note what a step takes for the phases after them."""
    device, subject, share = at.device, at.subject, at.share
    warmth = warm_up(device, subject, share.warm, plan.follow)
    at.step_ms = warmth.slowest_ms
    start = moment_of(device)
    until = share.timed(at.step_ms)
    timing = time_rounds(device, subject, warmth.step_ms, until, plan.follow)
    sm_mhz = clock_under_load(device, subject, warmth.step_ms, until)
    end = moment_of(device)
    others = others_share(start, end) if waits_for_itself(subject) else None
    core = (
        None
        if subject.batches
        else core_slowdown(timing.rounds, device.undisturbed_core_ns())
    )
    at.measurement = with_loader_wait(
        replace(
            at.measurement,
            times={STEP_MS.name: Distribution.of([r.step_ms for r in timing.rounds])},
            samples={STEP_MS.name: thinned([r.step_ms for r in timing.rounds])},
            dirty=tuple(_dirt(timing, warmth.unsteady, others, core)),
            # The median: a round may be disturbed between two looks at a clock.
            unwaited={STEP_MS.name: median(r.unwaited_ms for r in timing.rounds)},
            board=Board(gpu=device.fingerprint(), sm_mhz=sm_mhz),
            round_steps=timing.steps if device.kind.has(Capability.QUEUES) else None,
            remarks=tuple(_remarks(device, timing)),
        ),
        subject.batches,
        [r.loader_wait for r in timing.rounds],
    )
    at.step_ms = share.own_ms(at.step_ms)
    return at.measurement


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


def _judged_ms(measurement: Measurement) -> float:
    """Return the time of a step that is judged: a rate of another would contradict it."""
    kind = measurement.environment.hardware.kind
    return location(STEP_MS, measurement.times[STEP_MS.name], kind)


def _with_rates(measurement: Measurement, subject: Subject) -> Measurement:
    """Add what *subject* trains on per second of its step's time."""
    if STEP_MS.name not in measurement.times:
        return measurement
    step_ms = _judged_ms(measurement)
    work = subject.work.items()
    rates = {name: Distribution.of([1e3 * count / step_ms]) for name, count in work}
    return Found(times=rates).added_to(measurement)


def _with_sentinels(
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
            f"{STEP_MS.name} is that of single steps, in which a sync may cost nothing: "
            "--gpuperf-seconds leaves no time for rounds of more"
        )
    spans = [r.span_ms for r in timing.rounds if r.span_ms is not None]
    if not spans:
        return
    wall_ms, span_ms = median(r.step_ms for r in timing.rounds), median(spans)
    if abs(wall_ms - span_ms) > MISMATCH * wall_ms:
        yield (
            f"between CUDA events a step takes {span_ms:.4g} ms and {STEP_MS.name} is "
            f"{wall_ms:.4g} ms: "
            "other streams or devices work longer than the current stream, or one of "
            "the clocks is wrong"
        )


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


Moment = tuple[int, int | None]
"""A time, and what other programs have computed by then, if that is known."""


def moment_of(device: MeasuringDevice) -> Moment:
    """Read both from *device*, which also looks at the pace of its core."""
    for _ in range(CORE_READINGS):
        device.core_ns()
    return device.now_ns(), device.others_ns()


def others_share(before: Moment, after: Moment) -> float | None:
    """Return what others computed in between, as a share of one core."""
    (start_ns, others_before_ns), (end_ns, others_after_ns) = before, after
    if others_before_ns is None or others_after_ns is None or end_ns <= start_ns:
        return None
    return max(0, others_after_ns - others_before_ns) / (end_ns - start_ns)


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

On a core that nobody shares the loop took up to 15 % longer than its quickest, with a
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

PHASE_PATIENCE_SECONDS: Final = 30.0
"""Seconds that a step at least has after it used up a short cap."""

WARM_STEPS: Final = 2
"""Steps that are timed after the first, which may have compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStep:
    """The first step: ms, those of the process's own clock, ms without waits for a core,
    counters before, and result."""

    ms: float
    own_ms: float
    unwaited_ms: float
    counters: tuple[int, ...]
    result: object


def _of_slow_step(at: PhaseContext, first: FirstStep) -> Measurement:
    """Add the counts and sizes that are asked for, then time a few more steps.

    The first step used up the cap, so times come last: they matter least here.
    """
    times = {STEP_MS.name: Distribution.of([first.ms])}
    at.measurement = replace(at.measurement, times=times)
    found = later_phases(at)
    device, seconds = at.device, PHASE_PATIENCE_SECONDS - first.own_ms / 1e3
    least = Deadline.after(seconds, device.own_now_ns)
    patience = max(at.share.limit, least, key=lambda deadline: deadline.at_ns)
    found = _with_slow_steps(found, at, first, patience)
    if at.subject.batches is None:
        return found
    return found.missing({LOADER_WAIT.name: CUT_SHORT})


def run_first_step(device: MeasuringDevice, subject: Subject) -> FirstStep:
    """Run a step and time it; raise ``StepError`` if it was only started."""
    own_ns = device.own_now_ns()
    counters, waiting_ns = device.settling(), device.all_waiting_ns()
    process_ns, start_ns = device.process_ns(), device.now_ns()
    result = subject.run_once()
    device.synchronize()
    wall_ns, process_ns = device.now_ns() - start_ns, device.process_ns() - process_ns
    waited_ns = device.all_waiting_ns()
    return FirstStep(
        ms=wall_ns / 1e6,
        own_ms=max(0, device.own_now_ns() - own_ns) / 1e6,
        unwaited_ms=unwaited_ns_of(waiting_ns, waited_ns, wall_ns, process_ns) / 1e6,
        counters=counters,
        result=result,
    )


def _with_slow_steps(
    measurement: Measurement, at: PhaseContext, first: FirstStep, patience: Deadline
) -> Measurement:
    """Time up to ``WARM_STEPS`` more steps before *patience* ends; else take the first."""
    device = at.device
    before = device.settling()
    rounds: list[Round] = []
    device.disturbance()  # what came before the first round is no fault of it
    with no_garbage_collection():
        while len(rounds) < WARM_STEPS and patience.leaves(first.own_ms):
            rounds.append(time_round(device, at.subject, 1))
    after, count = device.settling(), 1 + len(rounds)
    if not measurement.times:
        # ``untouched`` has removed them: the step never ran on the device.
        return measurement
    left = "1 step, cold" if count == 1 else f"{count} steps"
    steps_ms = tuple(r.step_ms for r in rounds) or (first.ms,)
    # The step may be quicker than those show that still compiled or allocated.
    is_warm = after == (before if rounds else first.counters)
    unwaited_ms = median([r.unwaited_ms for r in rounds] or [first.unwaited_ms])
    return replace(
        measurement,
        times={**measurement.times, STEP_MS.name: Distribution.of(steps_ms)},
        samples={**measurement.samples, STEP_MS.name: steps_ms},
        dirty=(
            f"too slow to measure within --gpuperf-seconds, which left room for {left}",
        ),
        unwaited=(
            {**measurement.unwaited, STEP_MS.name: unwaited_ms}
            if is_warm
            else measurement.unwaited
        ),
    )
