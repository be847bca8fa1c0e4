"""Two steps in turns in one process: the exact label-swap test on lower quartiles.

The p-value is a share of label swaps and nothing else. A z-score from the same swaps
is blind to clean shifts: the pooled times have two humps, the quartile of a relabelled
half jumps between them, and its standard deviation is the shift itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from math import expm1, isfinite, log
from random import Random
from typing import Final

from ..errors import ErrorId, StepError
from ..model.ab import AbResult, Answer, Comparison
from ..model.budget import Tolerance
from ..model.metrics import METRICS, SPEEDUP, counted
from ..model.run import ComparedCall, StepCall
from ..model.verdict import Outcome, TestVerdict, Verdict
from .budget import ResolvedBudget, is_time, resolve
from .exact import in_runs
from .process_pairs import AB_POWER, CONFIDENCE, FEWEST_TO_BLAME, Decided, Schedule
from .readings import DISTURBANCE, plain
from .verdict import judge


# Label swaps: what the difference of two steps would be if their names meant nothing.
#
# A quad is four blocks in the order ABBA or BAAB, drawn at random. If the two steps
# take the same time, it could as well have been the other order: swapping the labels of
# any set of quads gives a difference that was just as likely.

Quad = tuple[float, float, float, float]
"""Logarithms of a step's time in four blocks: before, after, after, before."""

TIE: Final = 1e-12
"""Differences of logarithms closer than this are equal: it is rounding."""

_IS_AFTER: Final = (0, 1, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which quads are swapped in each of ``draws`` label swaps.

    The coin of quad ``q`` in draw ``d`` is the lowest bit of ``coins[d * quads + q]``.
    ``complete`` says that every possible swap is there once.
    """

    quads: int
    draws: int
    coins: bytes
    complete: bool = False

    @classmethod
    def drawn(cls, quads: int, draws: int, seed: int) -> Labels:
        """Draw *draws* swaps, the same for the same *seed* and number of *quads*."""
        random = Random(f"{seed} {quads}")  # noqa: S311, a reproducible draw
        return cls(quads=quads, draws=draws, coins=random.randbytes(draws * quads))

    @classmethod
    @lru_cache(maxsize=2)
    def every(cls, quads: int) -> Labels:
        """All ``2 ** quads`` swaps, the one that swaps nothing included."""
        coins = bytes(chain.from_iterable(product((0, 1), repeat=quads)))
        return cls(quads=quads, draws=2**quads, coins=coins, complete=True)

    def __iter__(self) -> Iterator[bytes]:
        """Coins of one draw after another."""
        for start in range(0, self.draws * self.quads, self.quads):
            yield self.coins[start : start + self.quads]

    def share(self, count: int) -> float:
        """P-value of an outcome that *count* of the draws share.

        Of a sample, what was observed is one draw more (Phipson and Smyth 2010,
        doi 10.2202/1544-6115.1585): no p-value is 0.
        """
        return count / self.draws if self.complete else (1 + count) / (1 + self.draws)


SwapCounts = tuple[int, int]
"""Draws with a difference of at least, and of at most, the observed one."""

Swaps = Callable[[Sequence[Quad], float, Labels], SwapCounts]
"""Counts label swaps after taking a shift from each logarithm of ``after``.

Every implementation gives the same counts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All blocks in ascending order: value, its quad, and 1 where it is of ``after``."""

    values: tuple[float, ...]
    owners: tuple[int, ...]
    sides: tuple[int, ...]

    @classmethod
    def of(cls, quads: Sequence[Quad], shift: float) -> Pool:
        blocks = sorted(
            (value - shift if after else value, owner, after)
            for owner, quad in enumerate(quads)
            for value, after in zip(quad, _IS_AFTER, strict=True)
        )
        values, owners, sides = zip(*blocks, strict=True)
        return cls(values=values, owners=owners, sides=sides)

    @property
    def rank(self) -> int:
        """Position of the lower quartile among the blocks of one side, from 0."""
        return len(self.values) // 8

    def difference(self, coins: bytes) -> float:
        """Lower quartile of ``after`` minus that of ``before`` under *coins*."""
        found = [0.0, 0.0]
        waiting = [self.rank, self.rank]
        for value, owner, side in zip(
            self.values, self.owners, self.sides, strict=True
        ):
            label = side ^ (coins[owner] & 1)
            if waiting[label] == 0:
                found[label] = value
                if waiting[1 - label] < 0:
                    break
            waiting[label] -= 1
        return found[1] - found[0]


def counts(differences: Iterable[float], observed: float) -> SwapCounts:
    """Compare each of *differences* with the *observed* one; equal ones count twice."""
    gaps = [difference - observed for difference in differences]
    return sum(gap >= -TIE for gap in gaps), sum(gap <= TIE for gap in gaps)


def difference(quads: Sequence[Quad]) -> float:
    """Lower quartile of ``after`` minus that of ``before``: order statistics.

    Without interpolation a quartile is one of the blocks, and label swaps of n quads
    are compared without rounding.
    """
    return Pool.of(quads, 0.0).difference(bytes(len(quads)))


def quartiles(quads: Sequence[Quad]) -> tuple[float, float]:
    """Lower quartiles of ``before`` and ``after``."""
    before = sorted(value for quad in quads for value in (quad[0], quad[3]))
    after = sorted(value for quad in quads for value in (quad[1], quad[2]))
    rank = len(quads) // 2
    return before[rank], after[rank]


QUAD_LOOKS: Final = (14, 28, 56, 112, 224)
QUAD_ALPHA: Final = 0.001
QUAD_BETA: Final = 0.02

DRAWS: Final = 10_000

MOST_ENUMERATED: Final = 14
"""Up to this many quads all label swaps are counted instead of a sample."""

_FIRST_REACH: Final = 0.01
_MOST_REACH: Final = 10.0  # a factor of 22,000 in time
_HALVINGS: Final = 12  # of a first reach: to 0.0003 %


MOST_DISTURBED: Final = max(DISTURBANCE.values())
"""Factor by which nothing but code makes a block slower, on any device."""

_ALONE: Final = 2
"""How often that factor counts if there is one quad: an event can hit both of its inner
blocks, which are of one side.
"""


def is_beyond_doubt(quads: Sequence[Quad], schedule: Schedule) -> bool:
    """Whether every block of ``after`` is slower than a disturbance could make it.

    A step so slow that the time cap ends the comparison after some quads leaves the
    label swaps too few to reject anything: the larger the fault, the less would be seen.
    """
    slowest = max(value for quad in quads for value in (quad[0], quad[3]))
    fastest = min(value for quad in quads for value in (quad[1], quad[2]))
    return fastest - slowest > log(_doubt(quads)) + schedule.tolerated


def _doubt(quads: Sequence[Quad]) -> float:
    return MOST_DISTURBED ** (_ALONE if len(quads) == 1 else 1)


def quad_schedule(tolerance: float, detect: float) -> Schedule:
    """Return the schedule of quads; raise ``UsageError`` for limits that make none."""
    return Schedule(
        tolerance=tolerance,
        detect=detect,
        alpha=QUAD_ALPHA,
        beta=QUAD_BETA,
        looks=QUAD_LOOKS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SwapTest:
    """P-values of hypotheses about how much slower ``after`` is, in logarithms."""

    quads: Sequence[Quad]
    swaps: Swaps
    labels: Labels

    def at_most(self, slowdown: float) -> float:
        """P-value of "slower by *slowdown* at most"; it grows with *slowdown*.

        Moving one side by x moves the observed difference by x and a relabelled one
        by at most as much, so each draw counts from some *slowdown* on.
        """
        at_least, _ = self.swaps(self.quads, slowdown, self.labels)
        return self.labels.share(at_least)

    def at_least(self, slowdown: float) -> float:
        """P-value of "slower by *slowdown* at least"; it falls with *slowdown*."""
        _, at_most = self.swaps(self.quads, slowdown, self.labels)
        return self.labels.share(at_most)


def decide_quads(
    quads: Sequence[Quad],
    schedule: Schedule,
    swaps: Swaps,
    *,
    seed: int = 0,
    last: bool = False,
) -> Decided:
    """Decide after *quads*; ``last`` says that there will be no more.

    The same *seed* gives the same answer. Raises ``StepError`` if a quad is not
    finite or there is none.
    """
    _refuse_unusable(quads)
    if not schedule.looks_at(len(quads), last=last):
        return Answer.MORE, None
    return _decide(_swap_test(quads, swaps, seed), schedule, last=last)


def judge_quads(
    quads: Sequence[Quad],
    schedule: Schedule,
    swaps: Swaps,
    *,
    seed: int = 0,
    last: bool = False,
) -> AbResult:
    """Decide as ``decide_quads`` does, with an interval and what could have been seen.

    The interval contains the slowdowns that the label-swap test does not reject.
    """
    decided = decide_quads(quads, schedule, swaps, seed=seed, last=last)
    test = _swap_test(quads, swaps, seed)
    change = difference(quads)
    tail = (1 - CONFIDENCE) / 2
    found = schedule.result(
        decided,
        change,
        (_bound(test, change, -1, tail), _bound(test, change, +1, tail)),
        _smallest(test, change, schedule),
        _evidence(decided, quads),
    )
    return replace(found, quads=len(quads))


def _evidence(decided: Decided, quads: Sequence[Quad]) -> str:
    """Name what decided: without a p-value it is the distance of the blocks alone."""
    over = counted(len(quads), "quad")
    if decided == (Answer.SLOWER, None):
        return (
            f"each block of after takes over {_doubt(quads):g} times as long as any of "
            f"before in {over}, which no disturbance explains"
        )
    return f"label-swap test over {over}"


def _swap_test(quads: Sequence[Quad], swaps: Swaps, seed: int) -> _SwapTest:
    if len(quads) <= MOST_ENUMERATED:
        labels = Labels.every(len(quads))
    else:
        # The labellings double with each quad, so only some are drawn. The seed makes
        # the verdict repeatable.
        labels = Labels.drawn(len(quads), DRAWS, seed)
    return _SwapTest(quads=quads, swaps=swaps, labels=labels)


def _decide(test: _SwapTest, schedule: Schedule, *, last: bool) -> Decided:
    change = difference(test.quads)
    if last and is_beyond_doubt(test.quads, schedule):
        return Answer.SLOWER, None
    if change > schedule.tolerated:  # else its p-value is above a half
        slower = test.at_most(schedule.tolerated)
        if slower < schedule.alpha_a_look:
            return Answer.SLOWER, slower
    if change < -schedule.tolerated:
        faster = test.at_least(-schedule.tolerated)
        if faster < schedule.alpha_a_look:
            return Answer.FASTER, faster
    far = max(test.at_least(schedule.detected), test.at_most(-schedule.detected))
    if far < schedule.beta:
        return Answer.SAME, far
    return schedule.inconclusive(len(test.quads), last=last), None


def _bound(test: _SwapTest, change: float, direction: int, risk: float) -> float | None:
    """Slowdown below (-1) or above (+1) *change* from which on *risk* rejects it.

    Found by bisection; ``None`` if none is rejected: too few quads, or ties.
    """
    reach = _FIRST_REACH
    while not _rejects(test, change + direction * reach, direction, risk):
        reach *= 2
        if reach > _MOST_REACH:
            return None
    inside, outside = (0.0 if reach == _FIRST_REACH else reach / 2), reach
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if _rejects(test, change + direction * middle, direction, risk):
            outside = middle
        else:
            inside = middle
    return change + direction * outside


def _rejects(test: _SwapTest, slowdown: float, direction: int, risk: float) -> bool:
    p_value = test.at_most(slowdown) if direction < 0 else test.at_least(slowdown)
    return p_value < risk


def _smallest(test: _SwapTest, change: float, schedule: Schedule) -> float | None:
    """Slowdown that this noise would have shown; it informs and decides nothing.

    To be called slower, a change must exceed the tolerance by as much as this one
    exceeds what one look rejects. The power comes from the other side of the interval.
    """
    low = _bound(test, change, -1, schedule.alpha_a_look)
    high = _bound(test, change, +1, 1 - AB_POWER)
    if low is None or high is None:
        return None
    return expm1(schedule.tolerated + high - low)


def _refuse_unusable(quads: Sequence[Quad]) -> None:
    if not quads:
        msg = "nothing to compare: expected at least one quad of times, found none"
        raise StepError(msg, ErrorId.GP715)
    for number, quad in enumerate(quads, start=1):
        for value in quad:
            if not isfinite(value):
                msg = (
                    f"quad {number} of {len(quads)}: expected the logarithms of four "
                    f"times, found {value}; a time that is zero, negative or no "
                    "number cannot be compared"
                )
                raise StepError(msg, ErrorId.GP715)


# Comparisons of two steps: by the speedup that was asked, and by what limits `after`.


KEYWORD: Final = str(SPEEDUP.budget)

ONLY_THE_SPEEDUP: Final = (
    "gpuperf.compare judges the speedup alone, gpuperf(step) judges times"
)


def judge_comparison(calls: Sequence[ComparedCall]) -> TestVerdict:
    """Judge one comparison by its runs; without a budget there is no verdict on it."""
    first = calls[0]
    budget = resolve(first.budgets, first.after.environment.hardware)
    counted = _without_times(budget)
    runs = [call.after for call in calls]
    test = judge(first.after.test, runs, counted, Tolerance(), None)
    asked = {*counted.limits, *counted.unbound}
    exact = [
        verdict
        for verdict in test.verdicts
        if METRICS[verdict.metric].budget in asked
        and verdict.outcome is not Outcome.NO_BASELINE
    ]
    speedup = []
    if KEYWORD in budget.limits:
        sides = [call.sides for call in calls]
        speedup = [judge_speedup(sides, budget.limits[KEYWORD])]
    elif KEYWORD in budget.unbound:
        because, outcome = budget.unbound[KEYWORD], Outcome.NOT_CHECKED
        speedup = [Verdict(metric=SPEEDUP.name, outcome=outcome, because=because)]
    return replace(test, verdicts=(*speedup, *exact), sides=first.sides)


def _without_times(budget: ResolvedBudget) -> ResolvedBudget:
    others = budget.without(KEYWORD)
    times = [keyword for keyword in others.limits if is_time(keyword)]
    return replace(
        others.without(*times),
        unbound={**others.unbound, **dict.fromkeys(times, ONLY_THE_SPEEDUP)},
    )


def demands_speedup(calls: Sequence[StepCall]) -> bool:
    """Whether a mark or a call of these measured steps asks for a speedup here."""
    return any(
        KEYWORD in resolve(call.budgets, call.measurement.environment.hardware).limits
        for call in calls
    )


def judge_speedup(runs: Sequence[Comparison], least: float) -> Verdict:
    """Judge by the 95 % interval: met or missed only if all of it is on one side.

    The first of *runs* decides unless it misses: a process has luck, and sizes that it
    draws, which no number of its steps averages out, so that several must miss.
    """
    first = _judge_run(runs[0], least)
    if first.outcome is not Outcome.OVER_BUDGET:
        return first
    others = [_judge_run(sides, least) for sides in runs[1:]]
    met = [o for o in others if o.outcome is not Outcome.OVER_BUDGET]
    if met:
        because = f"{first.because}, but in another run {met[0].because}"
        return replace(first, outcome=Outcome.INCONCLUSIVE, because=because)
    is_proven = len(runs) >= FEWEST_TO_BLAME
    because = f"{first.because}, {in_runs(runs)}"
    return replace(first, because=because, settled=is_proven, proving=not is_proven)


def _judge_run(sides: Comparison, least: float) -> Verdict:
    time = sides.time
    if time is None:
        outcome = Outcome.NOT_CHECKED
        because = sides.unmeasured.get(SPEEDUP.name, "the time was not measured")
    else:
        outcome, because = _against(time, least)
    return Verdict(
        metric=SPEEDUP.name,
        outcome=outcome,
        because=because,
        now=None if time is None else time.speedup,
        limit=least,
        unchecked_budget=time is not None and time.speedup is None,
    )


def _against(time: AbResult, least: float) -> tuple[Outcome, str]:
    low, high = time.least_speedup, time.most_speedup
    if time.speedup is None or low is None or high is None:
        return Outcome.INCONCLUSIVE, time.why
    found = (
        f"after is {plain(time.speedup)} times as fast as before (95 %: {plain(low)} to "
        f"{plain(high)})"
    )
    if low >= least:
        return Outcome.PASS, f"{found}, and {plain(least)} was asked"
    if high < least:
        missed = f"{found}, less than the {plain(least)} that was asked"
        return Outcome.OVER_BUDGET, missed
    unclear = f"which neither reaches nor misses the {plain(least)} that was asked"
    return Outcome.INCONCLUSIVE, f"{found}, {unclear}"
