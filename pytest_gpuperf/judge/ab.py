"""Limits, answers and wording that all A/B judges share."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1
from math import inf
from math import log1p
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import Answer
from .wording import percent


CONFIDENCE: Final = 0.95

AB_POWER: Final = 0.9
"""Share of runs in which the smallest detectable slowdown would be called slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbRule:
    """Two limits, two risks and the numbers of units at which the judge looks.

    A slowdown up to ``tolerance`` is called slower with probability ``alpha`` at most,
    over all ``looks``; one of ``detect`` or more is called same with ``beta`` at most,
    at each look. All are ratios. ``unit`` and ``units`` name what is counted.
    """

    tolerance: float
    detect: float
    alpha: float
    beta: float
    looks: tuple[int, ...]
    unit: str = "pair of processes"
    units: str = "pairs of processes"

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if no verdict could follow the two limits."""
        if not 0 <= self.tolerance < 1:
            msg = (
                f"tolerance={self.tolerance!r}: expected a ratio from 0 up to 1, "
                "such as 0.01 for 1 %"
            )
            raise UsageError(msg, ErrorId.GP221)
        if not self.tolerance < self.detect < inf:
            msg = (
                f"detect={self.detect!r}: expected a ratio above the tolerance, "
                f"{self.tolerance!r}"
            )
            raise UsageError(msg, ErrorId.GP221)

    @property
    def tolerated(self) -> float:
        """Logarithm of the largest ratio of times that is tolerated."""
        return log1p(self.tolerance)

    @property
    def detected(self) -> float:
        """Logarithm of the ratio of times that must not pass for the same."""
        return log1p(self.detect)

    @property
    def alpha_a_look(self) -> float:
        """Bonferroni's share of ``alpha``: looks at growing data are dependent."""
        return self.alpha / len(self.looks)

    def looks_at(self, units: int, *, last: bool) -> bool:
        """Whether an answer is due after *units*.

        Where the evidence ends early, what is left of ``alpha`` pays for one look at
        all of it: that it ended does not depend on which label is which.
        """
        return units in self.looks or last

    def undecided(self, units: int, *, last: bool) -> Answer:
        ended = last or units >= self.looks[-1]
        return Answer.INCONCLUSIVE if ended else Answer.MORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer and the p-value of the hypothesis it rejects, if it rejects one."""

    answer: Answer
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision with its numbers: logarithms of time after divided by time before.

    ``low`` and ``high`` bound ``change`` with ``CONFIDENCE``. ``smallest`` is the
    slowdown, a ratio, that would be called slower with probability ``AB_POWER``.
    ``None`` if there are too few units to say. ``evidence`` names the test.
    """

    decision: Decision
    change: float
    low: float | None
    high: float | None
    smallest: float | None
    units: int
    evidence: str

    @property
    def answer(self) -> Answer:
        return self.decision.answer


def in_words(ruling: Ruling, rule: AbRule) -> str:
    """Which rule decided, with its numbers."""
    tolerance, detect = percent(rule.tolerance), percent(rule.detect)
    match ruling.answer:
        case Answer.SLOWER | Answer.FASTER:
            said, end = f"after is {ruling.answer.value} by more than {tolerance}", ""
        case Answer.SAME:
            said, end = f"a change of {detect} or more is ruled out", ""
        case _:
            said = f"neither at most {tolerance} nor {detect} or more is ruled out"
            end = _sight(ruling)
    return f"{said}: {_interval(ruling)}; {ruling.evidence}{end}"


def _interval(ruling: Ruling) -> str:
    change = f"time {signed(ruling.change)}"
    if ruling.low is None or ruling.high is None:
        return f"{change}, too few for an interval"
    return f"{change}, 95 % interval {signed(ruling.low)} to {signed(ruling.high)}"


def signed(logarithm: float) -> str:
    """Show the *logarithm* of a ratio of times, as a change in percent."""
    return f"{100 * expm1(logarithm):+.1f} %"


def _sight(ruling: Ruling) -> str:
    if ruling.smallest is None:
        return ", too few to blame"
    return (
        "; the smallest slowdown these could have shown is "
        f"{100 * ruling.smallest:.1f} %"
    )
