"""Timed rounds: N steps between two synchronisations, no synchronisation inside.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from math import ceil
from math import sqrt
from statistics import fmean
from statistics import variance
from typing import Final
from typing import NamedTuple

from ..devices.garbage import no_garbage_collection
from ..devices.protocol import Device
from .deadline import Deadline
from .following import Follow
from .following import nobody
from .loader_wait import wait_pct
from .subject import Subject
from .warmup import QUIET_RATIO


ROUNDS: Final = 20
LEAST_ROUNDS: Final = 5
ROUND_MS: Final = 10.0
LONG_STEP_MS: Final = 100.0
"""Above it a run times ``LEAST_ROUNDS`` rounds of one step."""

MOST_REPEATS: Final = 3
"""Disturbed rounds that are repeated before the run is called dirty."""

MOST_REDONE: Final = 2
"""Times the phase is done: again where a compile, an allocation or a drift was in it."""

LEAST_HALF: Final = 4
"""Rounds in half a run below which nothing can be told from noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One timed block of steps; times are milliseconds a step."""

    step_ms: float
    process_ms: float
    span_ms: float | None
    waiting_share: float | None
    disturbance: str | None
    loader_wait_pct: float | None = None


class TimedBlock(NamedTuple):
    """One timed block of a comparison: what a step took, what disturbed it."""

    step_ms: float
    disturbance: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clean rounds of a run and why its times may be blamed on the machine.

    Each has ``steps`` steps. ``disturbed`` says what was wrong with the machine.
    """

    rounds: tuple[Round, ...]
    dirty: tuple[str, ...] = field(default=())
    steps: int = 1
    disturbed: str | None = None


def time_rounds(
    device: Device,
    subject: Subject,
    step_ms: float,
    deadline: Deadline,
    follow: Follow = nobody,
) -> Timing:
    """Time up to ``ROUNDS`` rounds of a step that takes about *step_ms*."""
    for _ in range(MOST_REDONE):
        before = device.settling()
        timing = _time_phase(device, subject, step_ms, deadline, follow)
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

    0 where noise alone explains it, up to three standard errors; where it is no more
    than a warm-up would take for steady; and for fewer than eight times.
    """
    half = len(times_ms) // 2
    first, second = times_ms[:half], times_ms[half:]
    if half < LEAST_HALF or fmean(first) <= 0:
        return 0.0
    error = sqrt(variance(first) / len(first) + variance(second) / len(second))
    drift = fmean(second) - fmean(first)
    noise = max(3 * error, QUIET_RATIO * fmean(first))
    return drift / fmean(first) if abs(drift) > noise else 0.0


def _time_phase(
    device: Device,
    subject: Subject,
    step_ms: float,
    deadline: Deadline,
    follow: Follow,
) -> Timing:
    steps = _steps_a_round(subject, step_ms)
    wanted = LEAST_ROUNDS if step_ms > LONG_STEP_MS else ROUNDS
    clean: list[Round] = []
    disturbed: list[Round] = []
    with no_garbage_collection():
        while len(clean) < wanted and len(disturbed) <= MOST_REPEATS:
            if clean and not deadline.leaves(step_ms * steps):
                break
            follow(f"round {len(clean) + 1}/{wanted}")
            measured = time_round(device, subject, steps)
            (disturbed if measured.disturbance else clean).append(measured)
    dirty = tuple(_dirt(clean, disturbed, wanted))
    return Timing(
        rounds=tuple(clean or disturbed),
        dirty=dirty,
        steps=steps,
        disturbed=dirty[0] if len(disturbed) > MOST_REPEATS else None,
    )


def _steps_a_round(subject: Subject, step_ms: float) -> int:
    steps = ceil(ROUND_MS / step_ms) if step_ms > 0 else 1
    return subject.most_steps(max(subject.together, steps))


def _dirt(clean: list[Round], disturbed: list[Round], wanted: int) -> Iterator[str]:
    if len(disturbed) > MOST_REPEATS:
        yield disturbed[-1].disturbance or ""
    elif len(clean) < min(wanted, LEAST_ROUNDS):
        yield f"the time cap left room for {len(clean)} of {wanted} rounds"


def time_round(device: Device, subject: Subject, steps: int) -> Round:
    """Time *steps* steps. The loop does nothing but call the step."""
    batch, step, batches = subject.batch(steps), subject.step, subject.batches
    fetched_before = batches and batches.fetched
    disturbed_before = device.disturbance()
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
    return Round(
        step_ms=wall_ns / steps / 1e6,
        process_ms=process_ns / steps / 1e6,
        span_ms=None if span_ms is None else span_ms / steps,
        waiting_share=_share(waiting_ns, device.waiting_ns(), wall_ns),
        disturbance=disturbed_before or device.disturbance(),
        loader_wait_pct=(
            wait_pct(fetched_before, batches.fetched, wall_ns)
            if batches and fetched_before
            else None
        ),
    )


def time_block(device: Device, subject: Subject, steps: int) -> TimedBlock:
    """Time *steps* steps by the wall, and read little else.

    Between two blocks lies the other side's: each reading here is a cost of the turns.
    """
    batch, step = subject.batch(steps), subject.step
    device.synchronize()
    start_ns = device.now_ns()
    for arguments in batch:
        step(*arguments)
    device.synchronize()
    step_ms = (device.now_ns() - start_ns) / steps / 1e6
    return TimedBlock(step_ms, device.disturbance())


def _share(before_ns: int | None, after_ns: int | None, wall_ns: int) -> float | None:
    if before_ns is None or after_ns is None or wall_ns <= 0:
        return None
    return (after_ns - before_ns) / wall_ns
