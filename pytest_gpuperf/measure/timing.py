"""Timed rounds: N steps between two synchronisations, no synchronisation inside.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log10, sqrt
from operator import attrgetter
from statistics import fmean, median, variance
from typing import Final, NamedTuple

from ..devices.base import Kernel, MeasuringDevice
from ..devices.preflight import no_garbage_collection
from ..devices.process_time import granted_cores
from ..model.environment import Capability, DeviceKind
from ..model.measurement import Board, Distribution, Measurement, location
from ..model.metrics import LATENCY_MS, LOADER_WAIT, STEP_MS, MeasuringPhase, read_in
from .dataloader import LoaderWait, loader_wait, with_loader_wait
from .plan import (
    COUNTING_STEPS,
    CUT_SHORT,
    LEAST_ROUNDS,
    MEMORY_STEPS,
    Deadline,
    Follow,
    Found,
    PhaseContext,
    cut_short,
    nobody,
)
from .step import Subject
from .warmup import QUIET_RATIO, warm_up


# The first step, which compiles and allocates as well: it shows what a step may take.


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStep:
    """The first step: ms, those of the process's own clock, ms without waits for a core,
    counters before, and result."""

    ms: float
    own_ms: float
    unwaited_ms: float
    counters: tuple[int, ...]
    result: object


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


# The times of a step: warm-up, rounds, and what the machine did meanwhile.


def timed_steps(at: PhaseContext, follow: Follow) -> Measurement:
    """Warm up, time rounds, and note what a step takes for the phases after them."""
    device, subject, share = at.device, at.subject, at.share
    warmth = warm_up(device, subject, share.warm, follow)
    at.step_ms = warmth.slowest_ms
    until = share.timed(at.step_ms)
    start = moment_of(device)
    timing = time_rounds(device, subject, warmth.step_ms, until, follow)
    sm_mhz = clock_under_load(device, subject, warmth.step_ms, until)
    others = others_share(start, moment_of(device))
    found = replace(
        with_times(at, [r.step_ms for r in timing.rounds]),
        dirty=tuple(_dirt(at, timing, warmth.unsteady, others)),
        # The median: a round may be disturbed between two looks at a clock.
        unwaited={STEP_MS.name: median(r.unwaited_ms for r in timing.rounds)},
        board=Board(gpu=device.fingerprint(), sm_mhz=sm_mhz),
        round_steps=timing.steps if device.kind.has(Capability.QUEUES) else None,
        remarks=tuple(_remarks(device, timing)),
    )
    at.step_ms = share.own_ms(at.step_ms)
    return with_loader_wait(
        found, subject.batches, [r.loader_wait for r in timing.rounds]
    )


def with_times(at: PhaseContext, steps_ms: Sequence[float]) -> Measurement:
    """Add what steps took, and what they train on per second."""
    found = Found.of_samples(STEP_MS, steps_ms)
    # Of the time that is judged: a rate of another would contradict it.
    judged_ms = location(STEP_MS, found.times[STEP_MS.name], at.device.kind)
    rates = {
        n: Distribution.of([1e3 * w / judged_ms]) for n, w in at.subject.work.items()
    }
    return replace(found, times={**found.times, **rates}).added_to(at.measurement)


ROUNDS: Final = 20
ROUND_MS: Final = 10.0
LONG_STEP_MS: Final = 100.0
"""Above it a run times ``LEAST_ROUNDS`` rounds, where nothing is enqueued of one step."""

QUEUED_ROUNDS: Final = 8
QUEUED_ROUND_MS: Final = 300.0
LEAST_QUEUED_STEPS: Final = 10
"""Steps of a round where the host runs ahead of the device, and how long it lasts.

Between two synchronisations the first step has to fill the queue, which the others do
not: a sync inside a step costs nothing in a round of one step, and its full price in
training. What the first step takes is therefore subtracted from a round as well.
"""

LONGEST_ROUND_MS: Final = 3000.0
"""A round of as many steps as the baseline's lasts no longer, unless it has the least."""

MOST_REPEATS: Final = 3
"""Disturbed rounds that are repeated before the run is called dirty."""

MOST_REDONE: Final = 2
"""Most runs of the phase: it is repeated after a compile, an allocation or a drift."""

LEAST_HALF: Final = 4
"""Rounds in half a run below which a drift cannot be separated from noise."""


class IsolatedStep(NamedTuple):
    """Milliseconds of one step between two synchronisations, and two events around it."""

    latency_ms: float
    unwaited_ms: float
    span_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One timed block of steps; times are milliseconds per step.

    ``unwaited_ms`` is ``step_ms`` less what threads and child processes waited for a
    core: less than that where several waited at once. ``core_ns`` is the longer time of
    a fixed loop right before and right after the steps.
    """

    step_ms: float
    process_ms: float
    unwaited_ms: float
    span_ms: float | None
    waiting_share: float | None
    disturbance: str | None
    loader_wait: LoaderWait | None = None
    core_ns: int | None = None

    def without_fill(self, alone: IsolatedStep, steps: int) -> Round:
        """Return the round of *steps* steps less what filling the queue takes.

        Of what is only a lower bound, the whole step *alone* is subtracted.
        """
        latency_ms = alone.latency_ms
        step_ms = without_fill(self.step_ms, latency_ms, steps)
        if step_ms == self.step_ms:
            return self
        span_ms, waited = None, self.loader_wait
        if self.span_ms is not None and alone.span_ms is not None:
            span_ms = max(0.0, (self.span_ms * steps - alone.span_ms) / (steps - 1))
        return replace(
            self,
            step_ms=step_ms,
            unwaited_ms=max(0.0, (self.unwaited_ms * steps - latency_ms) / (steps - 1)),
            span_ms=span_ms,
            loader_wait=waited and waited.without_fill(latency_ms, steps),
        )


class TimedBlock(NamedTuple):
    """One timed block of a comparison: what a step took, what disturbed it.

    ``alone_ms`` is what it took of its core, if it did nothing but work on it.
    """

    step_ms: float
    disturbance: str | None
    alone_ms: float | None = None


def without_fill(mean_ms: float, alone_ms: float, steps: int) -> float:
    """Return the time per step of a training loop, which fills its queue once.

    Between two synchronisations *steps* steps take ``fill + steps * step``, *mean_ms*
    each, and one step alone takes ``fill + step``: the difference has no fill. Returns
    *mean_ms* where that is no time.
    """
    rest_ms = mean_ms * steps - alone_ms
    return rest_ms / (steps - 1) if steps > 1 and rest_ms > 0 else mean_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clean rounds of a run and why its times may be blamed on the machine.

    Each has ``steps`` steps.
    """

    rounds: tuple[Round, ...]
    dirty: tuple[str, ...] = field(default=())
    steps: int = 1


def time_rounds(
    device: MeasuringDevice,
    subject: Subject,
    step_ms: float,
    deadline: Deadline,
    follow: Follow = nobody,
) -> Timing:
    """Time up to ``ROUNDS`` rounds of a step that takes about *step_ms*."""
    plan = RoundPlan.of(device.kind, subject, step_ms, deadline)
    for _ in range(MOST_REDONE):
        before = device.settling()
        timing = _time_phase(device, subject, plan, deadline, follow)
        moved = tuple(_moved(timing, counters=device.settling() != before))
        if not moved or not deadline.leaves(step_ms):
            break
    return replace(timing, dirty=(*timing.dirty, *moved))


def _moved(timing: Timing, *, counters: bool) -> Iterator[str]:
    if counters:
        yield "compile or allocator counters moved while the step was timed"
    drift = drift_of([r.step_ms for r in timing.rounds])
    if drift:
        yield f"the step drifted by {drift:+.1%} while it was timed"


def drift_of(times_ms: Sequence[float]) -> float:
    """Return by which share the second half of *times_ms* differs from the first.

    0 if noise alone explains it, up to three standard errors; if a warm-up would still
    take it for steady; and for fewer than eight times.
    """
    half = len(times_ms) // 2
    first, second = times_ms[:half], times_ms[half:]
    if half < LEAST_HALF or fmean(first) <= 0:
        return 0.0
    error = sqrt(variance(first) / len(first) + variance(second) / len(second))
    drift = fmean(second) - fmean(first)
    noise = max(3 * error, QUIET_RATIO * fmean(first))
    return drift / fmean(first) if abs(drift) > noise else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """How many rounds are wanted, and of how many steps.

    If the device ``queues`` steps, a step by itself is timed before each round.
    """

    rounds: int
    steps: int
    step_ms: float
    queues: bool = False

    @classmethod
    def of(
        cls,
        kind: DeviceKind,
        subject: Subject,
        step_ms: float,
        deadline: Deadline,
    ) -> RoundPlan:
        """Plan for a step that takes about *step_ms*."""
        queues = kind.has(Capability.QUEUES)
        if queues:
            rounds, steps = QUEUED_ROUNDS, _queued_steps(subject, step_ms, deadline)
        else:
            least = ceil(ROUND_MS / step_ms) if step_ms > 0 else 1
            rounds, steps = ROUNDS, subject.most_steps(max(subject.together, least))
        return cls(
            rounds=LEAST_ROUNDS if step_ms > LONG_STEP_MS else rounds,
            steps=steps,
            step_ms=step_ms,
            queues=queues and steps > 1,
        )

    @property
    def round_ms(self) -> float:
        """About what a round takes."""
        return self.step_ms * (self.steps + self.queues)


def _queued_steps(subject: Subject, step_ms: float, deadline: Deadline) -> int:
    """Return the steps of a round where the host runs ahead; 1 without time for more."""
    least, known = max(LEAST_QUEUED_STEPS, subject.together), subject.round_steps
    if step_ms <= 0:
        return subject.most_steps(known or least)
    steps = max(least, _two_digits(QUEUED_ROUND_MS / step_ms))
    if known is not None and known * step_ms <= LONGEST_ROUND_MS:
        steps = known
    # Of the shortest run, with the step alone that comes before each round.
    left_ms = (deadline.at_ns - deadline.now_ns()) / 1e6
    room = int(left_ms / LEAST_ROUNDS / step_ms) - 1
    return subject.most_steps(max(1, min(steps, room)))


def _two_digits(number: float) -> int:
    """Round up to two significant digits: the number is stored and read in diffs."""
    unit = 10 ** max(0, int(log10(number)) - 1) if number > 1 else 1
    return unit * ceil(number / unit)


def _time_phase(
    device: MeasuringDevice,
    subject: Subject,
    plan: RoundPlan,
    deadline: Deadline,
    follow: Follow,
) -> Timing:
    clean: list[Round] = []
    disturbed: list[Round] = []
    alone: list[IsolatedStep] = []
    device.disturbance()  # what came before the first round is no fault of it
    with no_garbage_collection():
        while len(clean) < plan.rounds and len(disturbed) <= MOST_REPEATS:
            # At least one round is timed: a run without any could say nothing.
            if (clean or disturbed) and not deadline.leaves(plan.round_ms):
                break
            follow(f"round {len(clean) + 1}/{plan.rounds}")
            # Right before the round, so that caches and clocks are those of the round.
            if plan.queues:
                alone.append(time_alone(device, subject))
            measured = time_round(device, subject, plan.steps)
            (disturbed if measured.disturbance else clean).append(measured)
    return Timing(
        rounds=_filled(clean or disturbed, alone, plan.steps),
        dirty=tuple(_repeated(clean, disturbed, plan.rounds)),
        steps=plan.steps,
    )


def _filled(
    rounds: Sequence[Round], alone: Sequence[IsolatedStep], steps: int
) -> tuple[Round, ...]:
    """Subtract what filling the queue takes from *rounds*: nothing without a queue."""
    if not alone:
        return tuple(rounds)
    # The median of all: one disturbed step alone must not make a round look fast.
    middle = sorted(alone, key=attrgetter("latency_ms"))[len(alone) // 2]
    return tuple(r.without_fill(middle, steps) for r in rounds)


def _repeated(clean: list[Round], disturbed: list[Round], wanted: int) -> Iterator[str]:
    if len(disturbed) > MOST_REPEATS:
        yield disturbed[-1].disturbance or ""
    elif len(clean) < min(wanted, LEAST_ROUNDS):
        yield f"the time cap left room for {len(clean)} of {wanted} rounds"


def time_round(device: MeasuringDevice, subject: Subject, steps: int) -> Round:
    """Time *steps* steps. The loop does nothing but call the step.

    What disturbed the machine since the last round, or the last look at it, counts.
    """
    batch, step, batches = subject.batch(steps), subject.step, subject.batches
    fetched_before = batches and batches.fetched
    # Slow readings come before the first synchronisation, and the clock is read last
    # and first: nothing but the steps is between its two readings.
    core_ns = device.core_ns()
    all_waiting_ns = device.all_waiting_ns()
    device.synchronize()
    start_event = device.record_event()
    waiting_ns = device.waiting_ns()
    process_ns = device.process_ns()
    start_ns = device.now_ns()
    for arguments in batch:
        step(*arguments)
    end_event = device.record_event()
    device.synchronize()
    wall_ns = device.now_ns() - start_ns
    process_ns = device.process_ns() - process_ns
    span_ms = device.span_ms(start_event, end_event)
    waiting_share = _share(waiting_ns, device.waiting_ns(), wall_ns)
    # What was waited before the clock started counts too: that can only excuse more.
    unwaited_ns = unwaited_ns_of(
        all_waiting_ns, device.all_waiting_ns(), wall_ns, process_ns
    )
    return Round(
        step_ms=wall_ns / steps / 1e6,
        process_ms=process_ns / steps / 1e6,
        unwaited_ms=unwaited_ns / steps / 1e6,
        span_ms=None if span_ms is None else span_ms / steps,
        waiting_share=waiting_share,
        disturbance=device.disturbance(),
        loader_wait=(
            loader_wait(fetched_before, batches.fetched, wall_ns)
            if batches and fetched_before
            else None
        ),
        core_ns=_longer(core_ns, device.core_ns()),
    )


def _longer(before_ns: int | None, after_ns: int | None) -> int | None:
    if before_ns is None or after_ns is None:
        return None
    return max(before_ns, after_ns)


def time_block(device: MeasuringDevice, subject: Subject, steps: int) -> TimedBlock:
    """Time *steps* steps by the wall, and read little else.

    Blocks of the two sides alternate, so each reading here is paid at every turn.
    """
    batch, step = subject.batch(steps), subject.step
    device.synchronize()
    before = device.work()
    start_ns = device.now_ns()
    for arguments in batch:
        step(*arguments)
    device.synchronize()
    step_ms = (device.now_ns() - start_ns) / steps / 1e6
    after = device.work()
    alone_ns = after.alone_ns(before) if before and after else None
    return TimedBlock(
        step_ms, device.disturbance(), alone_ns and alone_ns / steps / 1e6
    )


def unwaited_ns_of(
    before_ns: int | None, after_ns: int | None, wall_ns: int, process_ns: int
) -> int:
    """Return wall time without waiting; if waits are unknown, at most the CPU time."""
    if before_ns is None or after_ns is None:
        return min(wall_ns, process_ns)
    return max(0, wall_ns - (after_ns - before_ns))


def _share(before_ns: int | None, after_ns: int | None, wall_ns: int) -> float | None:
    if before_ns is None or after_ns is None or wall_ns <= 0:
        return None
    return (after_ns - before_ns) / wall_ns


# Latency: single steps, each between two synchronisations.

LATENCY_STEPS: Final = 7

LATENCY_NAMES: Final = read_in(MeasuringPhase.ISOLATED)

EXACT_STEPS: Final = MEMORY_STEPS + 1
"""Steps for which the isolated ones leave time."""


def isolated_steps(at: PhaseContext) -> Measurement:
    """Add how long single steps take, if counts and sizes have time after them."""
    if not at.share.cap.reserving(COUNTING_STEPS * at.step_ms).leaves(at.step_ms):
        return cut_short(at.measurement, LATENCY_NAMES)
    until = at.share.cap.reserving(EXACT_STEPS * at.step_ms)
    alone = time_isolated_steps(at.device, at.subject, at.step_ms, until)
    unwaited = {LATENCY_MS.name: median(one.unwaited_ms for one in alone)}
    found = Found.of_samples(LATENCY_MS, [one.latency_ms for one in alone])
    return replace(found, unwaited=unwaited).added_to(at.measurement)


def time_isolated_steps(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> list[IsolatedStep]:
    """Time up to ``LATENCY_STEPS`` isolated steps, at least one."""
    times: list[IsolatedStep] = []
    while len(times) < LATENCY_STEPS and (not times or deadline.leaves(step_ms)):
        times.append(time_alone(device, subject))
    return times


def time_alone(device: MeasuringDevice, subject: Subject) -> IsolatedStep:
    arguments = subject.arguments()
    waiting_ns, process_ns = device.all_waiting_ns(), device.process_ns()
    device.synchronize()
    start_event = device.record_event()
    start_ns = device.now_ns()
    subject.step(*arguments)
    end_event = device.record_event()
    device.synchronize()
    wall_ns = device.now_ns() - start_ns
    process_ns, waited_ns = device.process_ns() - process_ns, device.all_waiting_ns()
    unwaited_ns = unwaited_ns_of(waiting_ns, waited_ns, wall_ns, process_ns)
    # Ranks have no events, and count the rounds by this question.
    span_ms = None if end_event is None else device.span_ms(start_event, end_event)
    return IsolatedStep(wall_ns / 1e6, unwaited_ns / 1e6, span_ms)


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
    at: PhaseContext, timing: Timing, unsteady: str | None, others: float | None
) -> Iterator[str]:
    """Say why the times of a run may be blamed on the machine."""
    if unsteady:
        yield unsteady
    yield from timing.dirty
    shares = [r.waiting_share for r in timing.rounds if r.waiting_share is not None]
    yield from doubts(shares, others if waits_for_itself(at.subject) else None)
    undisturbed_ns = at.device.undisturbed_core_ns()
    slower = core_slowdown(timing.rounds, undisturbed_ns)
    if slower and at.subject.batches is None:
        yield f"the core was {slower:.0%} slower while the step was timed"


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


def waits_for_itself(subject: Subject) -> bool:
    """Whether a wait for a core that no other program has is the step's own fault.

    A control group that has used up its quota makes a process wait as well. With a
    loader, its workers are the likelier cause even then.
    """
    return subject.batches is not None or granted_cores() is None


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


def slow_steps(at: PhaseContext, first: FirstStep) -> Measurement:
    """Time up to ``WARM_STEPS`` more steps if patience lasts; else take the first."""
    device, before = at.device, at.device.settling()
    seconds = PHASE_PATIENCE_SECONDS - first.own_ms / 1e3
    least = Deadline.after(seconds, device.own_now_ns)
    patience = max(at.share.limit, least, key=lambda deadline: deadline.at_ns)
    rounds: list[Round] = []
    device.disturbance()  # what came before the first round is no fault of it
    with no_garbage_collection():
        while len(rounds) < WARM_STEPS and patience.leaves(first.own_ms):
            rounds.append(time_round(device, at.subject, 1))
    if not at.measurement.times:
        # ``untouched`` has removed them: the step never ran on the device.
        return at.measurement
    # The step may be quicker than those show that still compiled or allocated.
    is_warm = device.settling() == (before if rounds else first.counters)
    unwaited_ms = median([r.unwaited_ms for r in rounds] or [first.unwaited_ms])
    left = f"{1 + len(rounds)} steps" if rounds else "1 step, cold"
    found = replace(
        with_times(at, [r.step_ms for r in rounds] or [first.ms]),
        unwaited={**at.measurement.unwaited, STEP_MS.name: unwaited_ms},
        dirty=(
            f"too slow to measure within --gpuperf-seconds, which left room for {left}",
        ),
    )
    if not is_warm:
        found = replace(found, unwaited=at.measurement.unwaited)
    return (
        found
        if at.subject.batches is None
        else found.missing({LOADER_WAIT.name: CUT_SHORT})
    )


# Times of the fixed kernels that show the machine's speed.

REPEATS: Final = 4


def time_sentinels(device: MeasuringDevice) -> Mapping[str, tuple[float, ...]]:
    """Return milliseconds of each of the device's sentinels, ``REPEATS`` times.

    Nothing if one cannot run: out of memory, or settings of torch that the step has
    made.
    """
    try:
        with device.sentinels() as kernels:
            return {
                name: tuple(_time(device, kernel) for _ in range(REPEATS))
                for name, kernel in kernels.items()
            }
    # The sentinels are only evidence about the machine, and must not fail a test.
    # torch's error for a lack of memory is a RuntimeError, too.
    except RuntimeError:
        return {}


def _time(device: MeasuringDevice, kernel: Kernel) -> float:
    device.synchronize()
    start_ns = device.now_ns()
    kernel()
    device.synchronize()
    return (device.now_ns() - start_ns) / 1e6


def with_sentinels(
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


# The clock of the processor, which an idle GPU raises at once, or lowers.

CLOCK_READINGS: Final = 5
CLOCK_QUEUE_MS: Final = 20.0
CLOCK_READING_MS: Final = 500.0
"""Steps that are enqueued before the clock is read last this long, and all readings."""


def clock_under_load(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> int | None:
    """Return the processor's clock while it works on *subject*, in MHz, if it is seen.

    An idle GPU raises its clock at once, or lowers it. So steps are enqueued, the clock
    is read, and only then they are waited for. The median of several readings counts.
    """
    if not device.kind.has(Capability.QUEUES):
        return device.clock_mhz()
    steps = subject.most_steps(ceil(CLOCK_QUEUE_MS / step_ms)) if step_ms > 0 else 1
    # Not by what is read: all ranks must make the same number of steps.
    count = int(CLOCK_READING_MS / (steps * step_ms)) if step_ms > 0 else CLOCK_READINGS
    seen: list[int | None] = []
    while len(seen) < max(1, min(CLOCK_READINGS, count)):
        if not deadline.leaves(steps * step_ms):
            break
        seen.append(_clock_at_work(device, subject, steps))
    known = [mhz for mhz in seen if mhz is not None]
    return round(median(known)) if known else None


def _clock_at_work(device: MeasuringDevice, subject: Subject, steps: int) -> int | None:
    batch = subject.batch(steps)
    for arguments in batch:
        subject.step(*arguments)
    mhz = device.clock_mhz()
    device.synchronize()
    return mhz
