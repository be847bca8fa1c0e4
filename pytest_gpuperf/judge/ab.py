"""When an A/B is judged, what its numbers say, and what that makes of a verdict.

A stored number was measured on another day; the other code runs now, on this machine.
So the answer of an A/B takes the place of a baseline's. Budgets are ceilings, and stay.
Software that changed since the baseline slows both sides: then it acquits nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from math import exp
from math import expm1
from math import inf
from math import log1p
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import AbResult
from ..model.ab import Answer
from ..model.ab import ReferenceResult
from ..model.metrics import STEP_MS
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from .wording import percent
from .wording import signed


CONFIDENCE: Final = 0.95

AB_POWER: Final = 0.9
"""Share of runs in which the smallest detectable slowdown would be called slower."""

SLOWER_OR_FASTER: Final = frozenset({Answer.SLOWER, Answer.FASTER})
UNDECIDED: Final = frozenset({Answer.MORE, Answer.INCONCLUSIVE})

Decided = tuple[Answer, float | None]
"""An answer and the p-value of the hypothesis it rejects, if it rejects one."""

Interval = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The numbers of units at which the judge looks, between two limits, at two risks.

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
        sight = _sight(smallest) if answer in UNDECIDED else ""
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


# A verdict of a baseline that other code was asked about.

DOUBTFUL: Final = frozenset(
    {Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.NO_BASELINE}
)

SETTLED_AS: Final = {
    Answer.SLOWER: Outcome.REGRESSED,
    Answer.FASTER: Outcome.IMPROVED,
    Answer.SAME: Outcome.PASS,
}


def is_in_doubt(verdict: TestVerdict) -> bool:
    """Whether the baseline does not pass the time of a step, or there is none."""
    return any(map(_is_doubtful, verdict.verdicts))


def is_undecided(verdict: TestVerdict) -> bool:
    """Whether the baseline leaves the time undecided, and nothing else blames the test."""
    if any(one.outcome.fails for one in verdict.verdicts):
        return False
    return any(
        _is_of_baseline(one) and one.outcome is Outcome.INCONCLUSIVE
        for one in verdict.verdicts
    )


def referred(verdict: TestVerdict, settlement: ReferenceResult | None) -> TestVerdict:
    """Replace the verdict on the time by *settlement*, if there is one.

    If it settled nothing, the baseline's verdict is kept and the reason is added.
    """
    if settlement is None:
        return verdict
    verdicts = tuple(
        _referred(v, settlement, verdict.changed) if _is_of_baseline(v) else v
        for v in verdict.verdicts
    )
    passed = [v for v in verdicts if v.settlement and v.outcome is Outcome.PASS]
    remarks = [f"{v.metric}: {v.because}" for v in passed if not settlement.unasked]
    return replace(verdict, verdicts=verdicts, remarks=(*verdict.remarks, *remarks))


def _is_of_baseline(verdict: Verdict) -> bool:
    """Whether it judges the time of a step by a baseline, or by none."""
    unjudged = verdict.outcome is Outcome.NO_BASELINE
    return verdict.metric == STEP_MS.name and (unjudged or verdict.baseline is not None)


def _is_doubtful(verdict: Verdict) -> bool:
    return _is_of_baseline(verdict) and verdict.outcome in DOUBTFUL


def _referred(
    verdict: Verdict,
    settlement: ReferenceResult,
    changed: Mapping[str, tuple[str, str]],
) -> Verdict:
    time = settlement.time
    if time is None:
        return _unsettled(verdict, settlement) if _is_doubtful(verdict) else verdict
    outcome = SETTLED_AS.get(time.answer, Outcome.INCONCLUSIVE)
    engine = settlement.engine.partition(";")[0]
    said = f"A/B against {settlement.reference}, {engine}: {time.why}"
    judged = replace(verdict, settled=True, evidence=None, settlement=settlement)
    if outcome is not Outcome.PASS:
        return replace(
            judged,
            outcome=outcome,
            because=said,
            now=time.after_ms,
            baseline=time.before_ms,
            limit=None,
        )
    stored = verdict.outcome is not Outcome.NO_BASELINE
    # Both sides ran on today's software, so an A/B cannot see what that costs.
    return replace(
        judged,
        outcome=Outcome.INCONCLUSIVE if stored and changed else outcome,
        because=f"{said}; {_moral(settlement, changed, stored=stored)}",
    )


def _unsettled(verdict: Verdict, settlement: ReferenceResult) -> Verdict:
    against = f" against {settlement.reference}" if settlement.reference else ""
    because = f"{verdict.because}; not decided by A/B{against}: {settlement.why}"
    return replace(verdict, because=because, settlement=settlement)


def _moral(
    settlement: ReferenceResult, changed: Mapping[str, tuple[str, str]], *, stored: bool
) -> str:
    """Say what moved if it was not the code, and what is to be done about it.

    Both sides run on the software of today: a comparison cannot see what that costs.
    """
    if not stored:
        return "it has no baseline: record one"
    if changed:
        return (
            "not the code, but the machine or its software changed since the baseline "
            "was recorded: refresh it if the change is intended"
        )
    if settlement.unasked:
        return "its stored runs alone could not decide"
    if settlement.recorded:
        return (
            "the machine changed since the baseline was recorded, not the code: refresh "
            "it here"
        )
    return (
        "the baseline is out of date, and not by this change: the machine changed, or "
        "the code had before it; refresh it here"
    )
