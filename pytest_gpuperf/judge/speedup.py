"""Comparisons of two steps: by the speedup that was asked, and by what limits ``after``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..model.ab import AbResult, Comparison
from ..model.budget import Tolerance
from ..model.metrics import METRICS, SPEEDUP
from ..model.run import ComparedCall, StepCall
from ..model.verdict import Outcome, TestVerdict, Verdict
from .budget import ResolvedBudget, is_time, resolve
from .exact import in_runs
from .process_pairs import FEWEST_TO_BLAME
from .verdict import judge
from .wording import plain


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
