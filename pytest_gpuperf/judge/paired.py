"""Two steps in turns in one process: the exact label-swap test on lower quartiles.

The p-value is a share of label swaps and nothing else. A z-score from the same swaps
is blind to clean shifts: the pooled times have two humps, the quartile of a relabelled
half jumps between them, and its standard deviation is the shift itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from math import isfinite
from typing import Final

from ..errors import StepError
from ..model.comparison import Answer
from .ruling import CONFIDENCE
from .ruling import POWER
from .ruling import Decision
from .ruling import Rule
from .ruling import Ruling
from .swaps import Labels
from .swaps import Quad
from .swaps import Swaps
from .swaps import difference


LOOKS: Final = (14, 28, 56, 112, 224)
ALPHA: Final = 0.001
BETA: Final = 0.02

DRAWS: Final = 10_000

MOST_ENUMERATED: Final = 14
"""Up to this many quads all label swaps are counted instead of a sample."""

_FIRST_REACH: Final = 0.01
_MOST_REACH: Final = 10.0  # a factor of 22,000 in time
_HALVINGS: Final = 12  # of a first reach: to 0.0003 %


def quad_rule(tolerance: float, detect: float) -> Rule:
    """Return the rule for quads; raise ``UsageError`` for limits that make none."""
    return Rule(tolerance=tolerance, detect=detect, alpha=ALPHA, beta=BETA, looks=LOOKS)


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
        counted = self.swaps.count(self.quads, slowdown, self.labels)
        return self.labels.share(counted.at_least)

    def at_least(self, slowdown: float) -> float:
        """P-value of "slower by *slowdown* at least"; it falls with *slowdown*."""
        counted = self.swaps.count(self.quads, slowdown, self.labels)
        return self.labels.share(counted.at_most)


def decide_quads(
    quads: Sequence[Quad],
    rule: Rule,
    swaps: Swaps,
    *,
    seed: int = 0,
    last: bool = False,
) -> Decision:
    """Decide after *quads*; ``last`` says that there will be no more.

    The same *seed* gives the same answer. Raises ``StepError`` where a quad is not
    finite or there is none.
    """
    _refuse_unusable(quads)
    if not rule.looks_at(len(quads), last=last):
        return Decision(answer=Answer.MORE)
    return _decide(_swap_test(quads, swaps, seed), rule, last=last)


def judge_quads(
    quads: Sequence[Quad],
    rule: Rule,
    swaps: Swaps,
    *,
    seed: int = 0,
    last: bool = False,
) -> Ruling:
    """Decide as ``decide_quads`` does, with an interval and what could have been seen.

    The interval holds the slowdowns that the label-swap test does not reject.
    """
    decision = decide_quads(quads, rule, swaps, seed=seed, last=last)
    test = _swap_test(quads, swaps, seed)
    change = difference(quads)
    tail = (1 - CONFIDENCE) / 2
    return Ruling(
        decision=decision,
        change=change,
        low=_bound(test, change, -1, tail),
        high=_bound(test, change, +1, tail),
        smallest=_smallest(test, change, rule),
        units=len(quads),
        evidence=f"label-swap test over {len(quads)} quads",
    )


def _swap_test(quads: Sequence[Quad], swaps: Swaps, seed: int) -> _SwapTest:
    if len(quads) <= MOST_ENUMERATED:
        labels = Labels.every(len(quads))
    else:
        labels = Labels.drawn(len(quads), DRAWS, seed)
    return _SwapTest(quads=quads, swaps=swaps, labels=labels)


def _decide(test: _SwapTest, rule: Rule, *, last: bool) -> Decision:
    change = difference(test.quads)
    if change > rule.tolerated:  # else its p-value is above a half
        slower = test.at_most(rule.tolerated)
        if slower < rule.alpha_a_look:
            return Decision(answer=Answer.SLOWER, p_value=slower)
    if change < -rule.tolerated:
        faster = test.at_least(-rule.tolerated)
        if faster < rule.alpha_a_look:
            return Decision(answer=Answer.FASTER, p_value=faster)
    far = max(test.at_least(rule.detected), test.at_most(-rule.detected))
    if far < rule.beta:
        return Decision(answer=Answer.SAME, p_value=far)
    return Decision(answer=rule.undecided(len(test.quads), last=last))


def _bound(test: _SwapTest, change: float, direction: int, risk: float) -> float | None:
    """Slowdown below (-1) or above (+1) *change* from which on *risk* rejects it.

    Found by bisection; ``None`` where none is rejected: too few quads, or ties.
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


def _smallest(test: _SwapTest, change: float, rule: Rule) -> float | None:
    """Slowdown that this noise would have shown; it informs and decides nothing.

    To be called slower, a change must stand as far above the tolerance as this one
    stands above what one look rejects; the power is bought on its other side.
    """
    low = _bound(test, change, -1, rule.alpha_a_look)
    high = _bound(test, change, +1, 1 - POWER)
    if low is None or high is None:
        return None
    return expm1(rule.tolerated + high - low)


def _refuse_unusable(quads: Sequence[Quad]) -> None:
    if not quads:
        msg = "nothing to compare: expected at least one quad of times, found none"
        raise StepError(msg)
    for number, quad in enumerate(quads, start=1):
        for value in quad:
            if not isfinite(value):
                msg = (
                    f"quad {number} of {len(quads)}: expected the logarithms of four "
                    f"times, found {value}; a time that is zero, negative or no "
                    "number cannot be compared"
                )
                raise StepError(msg)
