"""Judge comparisons: by the speedup that was asked, and by what limits ``after``."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .judge.budget import ResolvedBudget
from .judge.budget import is_time
from .judge.budget import resolve
from .judge.speedup import judge_speedup
from .judge.verdict import judge
from .model.budget import Tolerance
from .model.metric import METRICS
from .model.metric import SPEEDUP
from .model.run import Call
from .model.run import ComparedCall
from .model.verdict import Outcome
from .model.verdict import TestVerdict
from .model.verdict import Verdict


KEYWORD: Final = str(SPEEDUP.budget)

ALONE: Final = "gpuperf.compare judges the speedup alone, gpuperf(step) judges times"


def judge_comparison(call: ComparedCall) -> TestVerdict:
    """Judge one comparison; without a budget there is no verdict on it.

    It needs no second run: both sides shared their process and its luck.
    """
    budget = resolve(call.budgets, call.after.environment.hardware)
    counted = _without_times(budget)
    test = judge(call.after.test, [call.after], counted, Tolerance(), None)
    asked = {*counted.limits, *counted.unbound}
    exact = [
        replace(verdict, settled=True)
        for verdict in test.verdicts
        if METRICS[verdict.metric].budget in asked
        and verdict.outcome is not Outcome.NO_BASELINE
    ]
    verdicts = (*_on_speedup(call, budget), *exact)
    return replace(test, verdicts=verdicts, sides=call.sides)


def _on_speedup(call: ComparedCall, budget: ResolvedBudget) -> Iterator[Verdict]:
    if KEYWORD in budget.limits:
        yield judge_speedup(call.sides, budget.limits[KEYWORD])
    elif KEYWORD in budget.unbound:
        yield Verdict(
            metric=SPEEDUP.name,
            outcome=Outcome.NOT_JUDGED,
            because=budget.unbound[KEYWORD],
        )


def _without_times(budget: ResolvedBudget) -> ResolvedBudget:
    others = budget.without(KEYWORD)
    times = [keyword for keyword in others.limits if is_time(keyword)]
    return replace(
        others.without(*times),
        unbound={**others.unbound, **dict.fromkeys(times, ALONE)},
    )


def demands_speedup(calls: Sequence[Call]) -> bool:
    """Whether a mark or a call of these measured steps asks for a speedup here."""
    return any(
        KEYWORD in resolve(call.budgets, call.measurement.environment.hardware).limits
        for call in calls
    )
