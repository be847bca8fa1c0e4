"""Two steps side by side: their times in turns, then what each does by itself."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, exp, inf, log
from statistics import median
from typing import Any, Final

from ..devices.base import Device, EmulatingDevice, MeasuringDevice, with_clock
from ..devices.preflight import no_garbage_collection
from ..errors import ErrorId, StepError
from ..judge.interleaved import (
    QUAD_LOOKS,
    TIE,
    Labels,
    Pool,
    Quad,
    SwapCounts,
    decide_quads,
    judge_quads,
    quad_schedule,
    quartiles,
)
from ..judge.verdict import noticed, tolerated
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
from ..measure.timing import (
    LEAST_QUEUED_STEPS,
    TimedBlock,
    time_alone,
    time_block,
    without_fill,
)
from ..measure.warmup import warm_up
from ..model.ab import AbResult, Answer, Comparison, Training
from ..model.budget import Tolerance
from ..model.environment import Capability
from ..model.measurement import Measurement
from ..model.metrics import METRICS, PEAK_ALLOCATED, PEAK_RESERVED, SPEEDUP, STEP_MS
from ..model.run import ComparedCall
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


# The turns: both steps in one process, until the judge can decide.


# Label swaps by the ten thousand, in torch.
#
# All operations are ones that torch does in the calling thread: on a busy machine a
# second thread that has to wait for its core costs thirty times what it saves.

CHECK_EVERY: Final = 16
"""Blocks between two checks whether every draw has found its quartiles."""


def torch_swaps(quads: Sequence[Quad], shift: float, labels: Labels) -> SwapCounts:
    """Count the draws of a label swap, all of them side by side."""
    import torch

    pool = Pool.of(quads, shift)
    before, after = _positions(torch, pool, _coins(labels))
    values = torch.tensor(pool.values, dtype=torch.float64, device="cpu")
    differences = values.index_select(0, after.int())
    differences -= values.index_select(0, before.int())
    # No swap at all is the draw of zeros: the observed difference.
    gaps = differences - pool.difference(bytes(len(quads)))
    return int((gaps >= -TIE).sum()), int((gaps <= TIE).sum())


def _positions(torch: Any, pool: Pool, coins: Any) -> tuple[Any, Any]:
    """Where in the pool each draw has the quartiles of ``before`` and ``after``.

    Walks up the pool once for all draws; it ends where the last of them has both.
    """
    # Four small tensors, because one large one is filled by several threads.
    before_seen, after_seen, before_at, after_at = (
        torch.zeros(coins.shape[1], dtype=torch.int16, device="cpu") for _ in range(4)
    )
    for position, (owner, side) in enumerate(
        zip(pool.owners, pool.sides, strict=True), start=1
    ):
        after_seen += coins[owner] ^ side
        before_seen.fill_(position).sub_(after_seen)
        before_at += before_seen <= pool.rank
        after_at += after_seen <= pool.rank
        if position % CHECK_EVERY == 0:
            fewest = torch.minimum(before_seen, after_seen).min()
            if fewest > pool.rank:
                break
    return before_at, after_at


@lru_cache(maxsize=2)
def _coins(labels: Labels) -> Any:
    """Coins as 0 and 1, a row a quad and a column a draw."""
    import torch

    coins = torch.frombuffer(bytearray(labels.coins), dtype=torch.uint8)
    return (coins.view(labels.draws, labels.quads) & 1).t().contiguous()


STEP_BLOCK_MS: Final = 8.0
"""A block of steps lasts at least this long: in shorter ones the cost of their ends
shows, and longer ones are disturbed more often."""

MOST_BLOCK_MS: Final = 100.0
"""A block of more than one step on the slower side lasts no longer than this."""

QUEUED_BLOCK_MS: Final = 100.0
"""A block of a device that queues steps lasts at least this long, and has at least as
many steps as a round. It is shorter than a round: a comparison needs 56 blocks, and what
filling the queue takes is subtracted from each.
"""

UNMEASURED: Final = 3
"""Steps that a quad spends on switching sides."""

BLAMING_QUADS: Final = QUAD_LOOKS[2]
"""Quads after which even a slowdown without any noise has been blamed."""

MOST_REPEATS: Final = 3
"""Disturbed quads in a row that are repeated before the comparison gives up."""

YOUNG: Final = 1
"""Generations 0 and 1: the cycles that a quad leaves would fill memory in the end."""

WITHOUT_WAITS: Final = "waits for a core are left out"

_EVEN: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A step and what it took when warm.

    ``alone_ms`` grows at each turn, by what the first step took by itself.
    """

    name: str
    subject: Subject
    step_ms: float
    alone_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """The two sides on a device, in blocks of ``steps``."""

    device: MeasuringDevice
    sides: tuple[_Side, _Side]
    steps: int

    @property
    def queues(self) -> bool:
        """Whether filling the queue is to be subtracted from a block."""
        return self.steps > 1 and self.device.kind.has(Capability.QUEUES)

    @property
    def quad_ms(self) -> float:
        before_ms, after_ms = (side.step_ms for side in self.sides)
        blocks_ms = 2 * self.steps * (before_ms + after_ms)
        return blocks_ms + UNMEASURED * max(before_ms, after_ms)


MOST_WAITING: Final = 0.05
"""Share of blocks that may wait by themselves where the others are taken by their work.

A quartile of either side is then still one of a block that did not.
"""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The clean quads so far, by the clock on the wall and by the work on a core."""

    by_wall: list[Quad] = field(default_factory=list)
    by_work: list[Quad] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def add(self, blocks: Sequence[TimedBlock]) -> None:
        before, after, later, last = (log(block.step_ms) for block in blocks)
        self.by_wall.append((before, after, later, last))
        before, after, later, last = (log(b.alone_ms or b.step_ms) for b in blocks)
        self.by_work.append((before, after, later, last))
        self.waiting.append(sum(block.alone_ms is None for block in blocks))

    @property
    def are_alone(self) -> bool:
        """Whether nothing but work takes the time of these steps.

        Both sides count together: which is which must not decide what is compared.
        """
        return sum(self.waiting) <= MOST_WAITING * 4 * len(self.waiting)

    @property
    def quads(self) -> Sequence[Quad]:
        """What is compared: waiting for a core on a busy machine is no step's work."""
        return self.by_work if self.are_alone else self.by_wall


def compare_steps(  # noqa: PLR0913, each is a word of the question
    device: MeasuringDevice,
    before: Subject,
    after: Subject,
    *,
    seconds: float,
    tolerance: float,
    detect: float,
    seed: int = 0,
    follow: Follow = nobody,
) -> AbResult:
    """Run *before* and *after* in turns and say which is faster.

    The steps are prepared ones and share no state. *seconds* caps the cost on the
    device's host clock; *tolerance* is the change that is never blamed, *detect* the
    one that never passes for the same, both ratios. *seed* draws the order of the
    blocks. *follow* is called with the progress. Raises ``UsageError`` for limits
    that allow no verdict, ``PreflightError``, ``StepError`` and whatever a step raises.
    """
    schedule = quad_schedule(tolerance, detect)
    device.preflight()
    deadline = Deadline.after(seconds, device.now_ns)
    contest = _warmed(device, (before, after), deadline)
    blocks, cut = _record(
        contest,
        deadline,
        random.Random(seed),  # noqa: S311, a reproducible order
        lambda quads: decide_quads(quads, schedule, torch_swaps, seed=seed)[0],
        follow,
    )
    quads = blocks.quads
    if not quads:
        return AbResult.unknown(cut)
    judged = judge_quads(quads, schedule, torch_swaps, seed=seed, last=True)
    why = f"{judged.why}; {WITHOUT_WAITS}" if blocks.are_alone else judged.why
    before_quartile, after_quartile = quartiles(quads)
    return replace(
        judged,
        why=f"{cut}; {why}" if cut and judged.answer is Answer.INCONCLUSIVE else why,
        before_ms=exp(before_quartile),
        after_ms=exp(after_quartile),
        steps=4 * judged.quads * contest.steps,
    )


def _warmed(
    device: MeasuringDevice,
    subjects: tuple[Subject, Subject],
    deadline: Deadline,
) -> _Contest:
    for subject in subjects:
        subject.run_once()
    before, after = (
        _Side(
            name=name,
            subject=subject,
            step_ms=warm_up(device, subject, deadline).step_ms,
        )
        for name, subject in zip(("before", "after"), subjects, strict=True)
    )
    sides = (before, after)
    if device.kind.has(Capability.QUEUES):
        steps = _queued_steps(sides, deadline)
    else:
        steps = _steps_a_block(sides)
    for subject in reversed(subjects):
        steps = subject.most_steps(steps)
    return _Contest(device=device, sides=sides, steps=steps)


def _steps_a_block(sides: tuple[_Side, _Side]) -> int:
    """Return the steps of a block, on both sides alike.

    On a busy machine the quartiles of blocks of one step and of four steps differ by
    several times even for equal steps. What each side seems to take is set by noise, so
    different numbers of steps would show a difference between equal sides.
    """
    fast_ms, slow_ms = sorted(side.step_ms for side in sides)
    steps = ceil(STEP_BLOCK_MS / fast_ms) if fast_ms > 0 else 1
    if steps * slow_ms > MOST_BLOCK_MS:
        steps = int(MOST_BLOCK_MS / slow_ms)
    return max(1, steps)


def _queued_steps(sides: tuple[_Side, _Side], deadline: Deadline) -> int:
    """Return the steps of a block in which the host runs ahead, on both sides alike.

    They are fewer, down to two, where the *deadline* leaves no room for as many quads as
    blame a slowdown: blocks of one step would call steps with and without a wait the same.
    """
    fast_ms, slow_ms = sorted(side.step_ms for side in sides)
    steps = LEAST_QUEUED_STEPS
    if fast_ms > 0:
        steps = max(steps, ceil(QUEUED_BLOCK_MS / fast_ms))
        left_ms = (deadline.at_ns - deadline.now_ns()) / 1e6
        room = int((left_ms / BLAMING_QUADS / slow_ms - UNMEASURED) / 4)
        steps = max(2, min(steps, room))
    return steps


def _record(
    contest: _Contest,
    deadline: Deadline,
    order: random.Random,
    answer: Callable[[Sequence[Quad]], Answer],
    follow: Follow,
) -> tuple[_Blocks, str]:
    """Return clean quads, and why there are no more of them if the judge wanted more."""
    found = _Blocks()
    disturbed = 0
    contest.device.disturbance()  # what came before the first quad is no fault of it
    with no_garbage_collection():
        while not found.quads or answer(found.quads) is Answer.MORE:
            if not deadline.leaves(contest.quad_ms):
                return found, _out_of_time(len(found.quads))
            follow(f"quad {len(found.quads) + 1}")
            blocks = _time_quad(contest, before_first=order.random() < _EVEN)
            # Between quads, at the same place for both sides; the automatic collection
            # is off.
            gc.collect(YOUNG)
            # Before the logarithms: a clock that stood still gives a time of 0.
            unreal = _unreal_time(contest, blocks)
            trouble = next((b.disturbance for b in blocks if b.disturbance), unreal)
            disturbed = disturbed + 1 if trouble else 0
            if trouble is None:
                found.add(blocks)
            elif disturbed > MOST_REPEATS and unreal is not None:
                raise StepError(unreal, ErrorId.GP303)
            elif disturbed > MOST_REPEATS:
                return found, trouble or ""
    return found, ""


def _out_of_time(quads: int) -> str:
    room = (
        f"{quads} of at most {QUAD_LOOKS[-1]} quads" if quads else "no quad of blocks"
    )
    return f"the time cap left room for {room}"


def _time_quad(contest: _Contest, *, before_first: bool) -> tuple[TimedBlock, ...]:
    """Time a quad and return its blocks as before, after, after, before.

    An unmeasured step comes before the first block, whatever ran before it. So a quad
    in the other order would be slow at the same places.
    """
    outer, inner = contest.sides if before_first else reversed(contest.sides)
    first = _time_block(contest, outer, switched=True)
    second = _time_block(contest, inner, switched=True)
    third = _time_block(contest, inner, switched=False)
    fourth = _time_block(contest, outer, switched=True)
    if before_first:
        return first, second, third, fourth
    return second, first, fourth, third


def _time_block(contest: _Contest, side: _Side, *, switched: bool) -> TimedBlock:
    if switched:
        _run_first(contest, side)
    block = time_block(contest.device, side.subject, contest.steps)
    if not contest.queues:
        return block
    # The median of all so far: one disturbed step must not make a block look fast.
    fill_ms = median(side.alone_ms)
    return block._replace(step_ms=without_fill(block.step_ms, fill_ms, contest.steps))


def _run_first(contest: _Contest, side: _Side) -> None:
    """Run a step that warms the side's caches, and time it if there is a queue."""
    if contest.queues:
        alone = time_alone(contest.device, side.subject)
        side.alone_ms.append(alone.latency_ms)
    else:
        side.subject.step(*side.subject.arguments())


def _unreal_time(contest: _Contest, blocks: Sequence[TimedBlock]) -> str | None:
    before, after = contest.sides
    for side, block in zip((before, after, after, before), blocks, strict=True):
        if not 0 < block.step_ms < inf:
            block_ms = block.step_ms * contest.steps
            return (
                f"{contest.steps} steps of {side.name} took {block_ms:.4g} ms by the "
                "clock: it stopped or was set back; compare without what replaces it"
            )
    return None
