"""Two steps in turns in one process, until the judge has seen enough."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from math import exp
from math import inf
from math import log
from typing import Final

from ..devices.garbage import no_garbage_collection
from ..devices.protocol import Device
from ..judge.paired import LOOKS
from ..judge.paired import decide_quads
from ..judge.paired import judge_quads
from ..judge.paired import quad_rule
from ..judge.ruling import Rule
from ..judge.ruling import Ruling
from ..judge.ruling import in_words
from ..judge.swaps import Quad
from ..judge.swaps import quartiles
from ..model.comparison import Answer
from ..model.comparison import Comparison
from ..probes.deadline import Deadline
from ..probes.following import Follow
from ..probes.following import nobody
from ..probes.subject import Subject
from ..probes.timing import TimedBlock
from ..probes.timing import time_block
from ..probes.warmup import warm_up
from .swaps import TorchSwaps


BLOCK_MS: Final = 8.0
"""A block of steps lasts at least this long: shorter ones show the cost of their ends,
longer ones less often escape a busy neighbour."""

MOST_BLOCK_MS: Final = 100.0
"""A block of more than one step on the slower side lasts no longer than this."""

UNMEASURED: Final = 3
"""Steps that a quad spends on switching sides."""

MOST_REPEATS: Final = 3
"""Disturbed quads in a row that are repeated before the comparison gives up."""

YOUNG: Final = 1
"""Generations 0 and 1: the cycles that a quad leaves would fill memory in the end."""

_EVEN: Final = 0.5

Enter = Callable[[], None]
"""Prepares the process for the turn of a side."""


def nothing() -> None:
    """Enter a side that needs nothing: both are of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A step and what it took when warm."""

    name: str
    subject: Subject
    step_ms: float
    enter: Enter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """The two sides on a device, in blocks of ``steps``."""

    device: Device
    sides: tuple[_Side, _Side]
    steps: int

    @property
    def quad_ms(self) -> float:
        before_ms, after_ms = (side.step_ms for side in self.sides)
        blocks_ms = 2 * self.steps * (before_ms + after_ms)
        return blocks_ms + UNMEASURED * max(before_ms, after_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """Clean quads, and why there are no more of them if the judge wanted more."""

    quads: Sequence[Quad]
    cut: str | None = None


def compare_steps(  # noqa: PLR0913, each is a word of the question
    device: Device,
    before: Subject,
    after: Subject,
    *,
    seconds: float,
    tolerance: float,
    detect: float,
    seed: int = 0,
    enter: tuple[Enter, Enter] = (nothing, nothing),
    block_ms: float = BLOCK_MS,
    follow: Follow = nobody,
) -> Comparison:
    """Run *before* and *after* in turns and say which is faster.

    The steps are prepared ones and share no state. *seconds* caps the cost on the
    device's host clock; *tolerance* is the change that is never blamed, *detect* the
    one that never passes for the same, both ratios. *seed* draws the order of the
    blocks, which last *block_ms* at least. *enter* is called, unmeasured, before the
    turns of each side, *follow* told how far it is. Raises ``UsageError`` for limits that make no verdict,
    ``PreflightError``, ``StepError`` and whatever a step raises.
    """
    rule = quad_rule(tolerance, detect)
    device.preflight()
    swaps = TorchSwaps()
    deadline = Deadline.after(seconds, device.now_ns)
    contest = _warmed(device, (before, after), enter, block_ms, deadline)
    series = _record(
        contest,
        deadline,
        random.Random(seed),  # noqa: S311, a reproducible order
        lambda quads: decide_quads(quads, rule, swaps, seed=seed).answer,
        follow,
    )
    if not series.quads:
        return _untold(rule, series.cut or "")
    ruling = judge_quads(series.quads, rule, swaps, seed=seed, last=True)
    return _comparison(contest, series, ruling, rule)


def _warmed(
    device: Device,
    subjects: tuple[Subject, Subject],
    enter: tuple[Enter, Enter],
    block_ms: float,
    deadline: Deadline,
) -> _Contest:
    for subject, prepare in zip(subjects, enter, strict=True):
        prepare()
        subject.run_once()
    before, after = (
        _warm_side(device, name, subject, prepare, deadline)
        for name, subject, prepare in zip(
            ("before", "after"), subjects, enter, strict=True
        )
    )
    sides = (before, after)
    steps = _steps_a_block(sides, block_ms)
    return _Contest(device=device, sides=sides, steps=steps)


def _warm_side(
    device: Device, name: str, subject: Subject, enter: Enter, deadline: Deadline
) -> _Side:
    enter()
    step_ms = warm_up(device, subject, deadline).step_ms
    return _Side(name=name, subject=subject, step_ms=step_ms, enter=enter)


def _steps_a_block(sides: tuple[_Side, _Side], block_ms: float) -> int:
    """Return the steps of a block, on both sides alike.

    On a busy machine the quartiles of blocks of one step and of four differ several
    times where the steps do not, and noise alone sets what each side seems to take:
    steps chosen side by side would blame the innocent.
    """
    fast_ms, slow_ms = sorted(side.step_ms for side in sides)
    steps = ceil(block_ms / fast_ms) if fast_ms > 0 else 1
    if steps * slow_ms > MOST_BLOCK_MS:
        steps = int(MOST_BLOCK_MS / slow_ms)
    before, after = (side.subject for side in sides)
    return before.most_steps(after.most_steps(max(1, steps)))


def _record(
    contest: _Contest,
    deadline: Deadline,
    order: random.Random,
    answer: Callable[[Sequence[Quad]], Answer],
    follow: Follow,
) -> _Series:
    quads: list[Quad] = []
    disturbed = 0
    with no_garbage_collection():
        while not quads or answer(quads) is Answer.MORE:
            if not deadline.leaves(contest.quad_ms):
                return _Series(quads=quads, cut=_out_of_time(len(quads)))
            follow(f"quad {len(quads) + 1}")
            trouble = contest.device.disturbance()
            blocks = _time_quad(contest, before_first=order.random() < _EVEN)
            gc.collect(YOUNG)
            trouble = trouble or _trouble(contest, blocks)
            disturbed = disturbed + 1 if trouble else 0
            if trouble is None:
                quads.append(_logarithms(blocks))
            elif disturbed > MOST_REPEATS:
                return _Series(quads=quads, cut=trouble)
    return _Series(quads=quads)


def _out_of_time(quads: int) -> str:
    room = f"{quads} of at most {LOOKS[-1]} quads" if quads else "no quad of blocks"
    return f"the time cap left room for {room}"


def _time_quad(contest: _Contest, *, before_first: bool) -> tuple[TimedBlock, ...]:
    """Time a quad and return its blocks as before, after, after, before.

    An unmeasured step comes before the first block whatever came before that, so that
    a quad in the other order would have had the same places to be slow at.
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
        side.enter()
        side.subject.step(*side.subject.arguments())
    return time_block(contest.device, side.subject, contest.steps)


def _trouble(contest: _Contest, blocks: Sequence[TimedBlock]) -> str | None:
    before, after = contest.sides
    for side, block in zip((before, after, after, before), blocks, strict=True):
        if block.disturbance:
            return block.disturbance
        if not 0 < block.step_ms < inf:
            block_ms = block.step_ms * contest.steps
            return (
                f"{contest.steps} steps of {side.name} took {block_ms:.4g} ms by the "
                "clock"
            )
    return None


def _logarithms(blocks: Sequence[TimedBlock]) -> Quad:
    before, after, later, last = (log(block.step_ms) for block in blocks)
    return before, after, later, last


def _untold(rule: Rule, why: str) -> Comparison:
    return Comparison(
        verdict=Answer.INCONCLUSIVE,
        why=why,
        tolerance=rule.tolerance,
        detect=rule.detect,
    )


def _comparison(
    contest: _Contest, series: _Series, ruling: Ruling, rule: Rule
) -> Comparison:
    why = in_words(ruling, rule)
    if series.cut and ruling.answer is Answer.INCONCLUSIVE:
        why = f"{series.cut}; {why}"
    before, after = quartiles(series.quads)
    return Comparison(
        verdict=ruling.answer,
        why=why,
        tolerance=rule.tolerance,
        detect=rule.detect,
        speedup=exp(-ruling.change),
        low=None if ruling.high is None else exp(-ruling.high),
        high=None if ruling.low is None else exp(-ruling.low),
        before_ms=exp(before),
        after_ms=exp(after),
        p_value=ruling.decision.p_value,
        smallest_slowdown=ruling.smallest,
        quads=ruling.units,
        steps=4 * ruling.units * contest.steps,
    )
