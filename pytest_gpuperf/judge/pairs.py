"""Pairs of fresh processes: the pair is the unit, and its spread is all there is.

A process has lasting luck, in memory layout or in the algorithms it settles on, that
no number of steps averages out: the steps of two processes that take turns are not
exchangeable. So each pair gives one number, and the spread is that of these numbers
alone: a spread assumed beforehand blames whoever varies more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1
from math import isfinite
from math import sqrt
from statistics import NormalDist
from statistics import fmean
from statistics import stdev
from typing import Final

from ..errors import RunError
from ..model.comparison import Answer
from .ruling import CONFIDENCE
from .ruling import POWER
from .ruling import Decision
from .ruling import Rule
from .ruling import Ruling
from .student import t_isf
from .student import t_sf


LOOKS: Final = (3, 5, 8)
ALPHA: Final = 0.01
BETA: Final = 0.05

LEAST_ERROR: Final = 0.001
"""Standard error of a mean that three pairs which agree by luck cannot undercut."""

_LEAST_PAIRS: Final = 2


def pair_rule(tolerance: float, detect: float) -> Rule:
    """Return the rule for pairs; raise ``UsageError`` for limits that make none."""
    return Rule(tolerance=tolerance, detect=detect, alpha=ALPHA, beta=BETA, looks=LOOKS)


def judge_pairs(
    differences: Sequence[float], rule: Rule, *, last: bool = False
) -> Ruling:
    """Judge pairs of fresh processes by Student's t over the pairs.

    Each difference is the logarithm of a step's lower quartile in ``after`` minus that
    in ``before``. ``last`` says that there will be no more pairs. Raises ``RunError``
    where a difference is not finite or there is none.
    """
    _refuse_unusable(differences)
    pairs, change = len(differences), fmean(differences)
    if pairs < _LEAST_PAIRS:
        answer = rule.undecided(pairs, last=last)
        return _ruling(Decision(answer=answer), change, pairs)
    error = max(stdev(differences) / sqrt(pairs), LEAST_ERROR)
    decision = Decision(answer=Answer.MORE)
    if rule.looks_at(pairs, last=last):
        decision = _decide(change, error, pairs, rule, last=last)
    reach = t_isf((1 - CONFIDENCE) / 2, pairs - 1) * error
    smallest = _smallest(rule, error, pairs)
    return _ruling(decision, change, pairs, reach=reach, smallest=smallest)


def _ruling(
    decision: Decision,
    change: float,
    pairs: int,
    *,
    reach: float | None = None,
    smallest: float | None = None,
) -> Ruling:
    return Ruling(
        decision=decision,
        change=change,
        low=None if reach is None else change - reach,
        high=None if reach is None else change + reach,
        smallest=smallest,
        units=pairs,
        evidence=f"t-test over {pairs} pair{'s' if pairs != 1 else ''} of processes",
    )


def _decide(
    change: float, error: float, pairs: int, rule: Rule, *, last: bool
) -> Decision:
    slower = t_sf((change - rule.tolerated) / error, pairs - 1)
    if slower < rule.alpha_a_look:
        return Decision(answer=Answer.SLOWER, p_value=slower)
    faster = t_sf((-change - rule.tolerated) / error, pairs - 1)
    if faster < rule.alpha_a_look:
        return Decision(answer=Answer.FASTER, p_value=faster)
    far = t_sf((rule.detected - abs(change)) / error, pairs - 1)
    if far < rule.beta:
        return Decision(answer=Answer.SAME, p_value=far)
    return Decision(answer=rule.undecided(pairs, last=last))


def _smallest(rule: Rule, error: float, pairs: int) -> float:
    """Slowdown that this spread would have shown; it informs and decides nothing.

    The power's quantile is the normal one: the spread is that of these pairs, known.
    """
    quantiles = t_isf(rule.alpha_a_look, pairs - 1) + NormalDist().inv_cdf(POWER)
    return expm1(rule.tolerated + quantiles * error)


def _refuse_unusable(differences: Sequence[float]) -> None:
    if not differences:
        msg = "nothing to compare: expected at least one pair of processes, found none"
        raise RunError(msg)
    for number, difference in enumerate(differences, start=1):
        if not isfinite(difference):
            msg = (
                f"pair {number} of {len(differences)}: expected the logarithm of a "
                f"ratio of times, found {difference}; a time that is zero, negative "
                "or no number cannot be compared"
            )
            raise RunError(msg)
