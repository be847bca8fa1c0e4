"""How many times as fast a step became: the least that its author demands."""

from __future__ import annotations

from ..model.comparison import Sides
from ..model.metric import SPEEDUP
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .figure import plain


def judge_speedup(sides: Sides, least: float) -> Verdict:
    """Judge by the 95 % interval: met or missed only where all of it is on one side."""
    time = sides.time
    if time is None:
        outcome = Outcome.NOT_JUDGED
        because = sides.unmeasured.get(SPEEDUP.name, "the time was not measured")
    elif time.speedup is None or time.low is None or time.high is None:
        outcome, because = Outcome.INCONCLUSIVE, time.why
    else:
        outcome = _outcome(time.low, time.high, least)
        because = _sentence(outcome, time.speedup, (time.low, time.high), least)
    return Verdict(
        metric=SPEEDUP.name,
        outcome=outcome,
        because=because,
        now=None if time is None else time.speedup,
        limit=least,
    )


def _outcome(low: float, high: float, least: float) -> Outcome:
    if low >= least:
        return Outcome.PASS
    return Outcome.OVER_BUDGET if high < least else Outcome.INCONCLUSIVE


def _sentence(
    outcome: Outcome, speedup: float, interval: tuple[float, float], least: float
) -> str:
    low, high = map(plain, interval)
    found = f"after is {plain(speedup)} times as fast as before (95 %: {low} to {high})"
    if outcome is Outcome.PASS:
        return f"{found}, and {plain(least)} was asked"
    if outcome is Outcome.OVER_BUDGET:
        return f"{found}, less than the {plain(least)} that was asked"
    return (
        f"{found}, which neither reaches nor misses the {plain(least)} that was asked"
    )
