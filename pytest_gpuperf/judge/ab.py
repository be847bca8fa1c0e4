"""When an A/B is judged, and what its numbers say."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, log1p
from typing import Final

from ..errors import ErrorId, UsageError
from ..model.ab import AbResult, Answer
from .readings import percent, signed


CONFIDENCE: Final = 0.95

AB_POWER: Final = 0.9
"""Share of runs in which the smallest detectable slowdown would be called slower."""

SLOWER_OR_FASTER: Final = frozenset({Answer.SLOWER, Answer.FASTER})
OPEN: Final = frozenset({Answer.MORE, Answer.INCONCLUSIVE})

Decided = tuple[Answer, float | None]
"""An answer and the p-value of the hypothesis it rejects, if it rejects one."""

Interval = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The numbers of units at which the judge looks, between two limits, at two risks.

    A slowdown up to ``tolerance`` is called slower with probability ``alpha`` at most,
    over all ``looks``; one of ``detect`` or more is called same with ``beta`` at most,
    at each look. All are ratios.
    """

    tolerance: float
    detect: float
    alpha: float
    beta: float
    looks: tuple[int, ...]

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

    def inconclusive(self, units: int, *, last: bool) -> Answer:
        ended = last or units >= self.looks[-1]
        return Answer.INCONCLUSIVE if ended else Answer.MORE

    def result(
        self,
        decided: Decided,
        change: float,
        interval: Interval,
        smallest: float | None,
        evidence: str,
    ) -> AbResult:
        """Return what was *decided*, in words and numbers.

        The *change* and the *interval* that contains it with ``CONFIDENCE`` are logarithms
        of time after divided by time before. *smallest* is the slowdown, a ratio, that
        would be called slower with probability ``AB_POWER``. ``None`` if there are too
        few units to say. *evidence* names the test.
        """
        answer, p_value = decided
        low, high = interval
        numbers = (
            f"time {signed(expm1(change))}, {_interval_in_words(low, high)}; {evidence}"
        )
        sight = _sight(smallest) if answer in OPEN else ""
        return AbResult(
            answer=answer,
            why=f"{self._said(answer)}: {numbers}{sight}",
            ratio=exp(change),
            low=None if low is None else exp(low),
            high=None if high is None else exp(high),
            smallest=smallest,
            p_value=p_value,
        )

    def _said(self, answer: Answer) -> str:
        tolerance, detect = percent(self.tolerance), percent(self.detect)
        if answer in SLOWER_OR_FASTER:
            return f"after is {answer.value} by more than {tolerance}"
        if answer is Answer.SAME:
            return f"a change of {detect} or more is ruled out"
        return f"neither at most {tolerance} nor {detect} or more is ruled out"


def _interval_in_words(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "too few for an interval"
    return f"95 % interval {signed(expm1(low))} to {signed(expm1(high))}"


def _sight(smallest: float | None) -> str:
    if smallest is None:
        return ", too few to blame"
    return f"; the smallest slowdown these could have shown is {100 * smallest:.1f} %"
