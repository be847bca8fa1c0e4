"""Times, shares and rates against their limits: missed only if proven, met only if proven.

After 2, 3 and 5 runs a t test at a third of alpha asks whether the mean is over a ceiling,
or below a floor, and every run must be; after any run it passes if the upper 95 % bound is
not. The first rule that is met decides, later runs do not reopen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum, inf, log
from typing import Final

from ..model.baseline import ENOUGH_RUNS, RunSummary
from ..model.measurement import Measurement
from ..model.metrics import Direction, Metric, Unit
from ..model.verdict import DecidedBy, Evidence, Outcome, Verdict
from .readings import (
    MAX_RUNS,
    WHOLE_PERCENT,
    Reading,
    against,
    despite,
    dirt,
    readings,
    remaining_runs,
    stored_values,
)
from .statistics import (
    ALPHA,
    INTERVAL_RISK,
    PASS_RISK,
    POWER_QUANTILE,
    Shift,
    Spread,
    ratio,
)


# The excess of a noisy value over its limit, as a log ratio of times.
#
# A time is compared as it is. A loop that waits for its loader a share w of its time,
# and may wait w0, takes (1 - w0) / (1 - w) of the time that it may take, because its
# work is the same. So shares near 0 hardly differ, and their noise is that of times.
# The excess of a value that should be high is how many times it is too low.


LEAST_LEFT: Final = 1e-9
"""What a ceiling of 100 % leaves: no share is above it, and 0 has no logarithm."""


def log_excess(metric: Metric, value: float, limit: float) -> float:
    """Return the excess of *value* over *limit*, or its lack, both in the metric's unit."""
    if metric.direction is Direction.HIGHER:
        return log(limit / value)
    if metric.unit is Unit.PERCENT:
        return log(max(LEAST_LEFT, WHOLE_PERCENT - limit) / (WHOLE_PERCENT - value))
    return log(value / limit)


def value_at(metric: Metric, excess: float, limit: float) -> float:
    """Return the value that is *excess* above *limit*, or below a floor."""
    if metric.direction is Direction.HIGHER:
        return min(_most(metric), limit / (1 + ratio(excess)))
    if metric.unit is Unit.PERCENT:
        return WHOLE_PERCENT - (WHOLE_PERCENT - limit) / (1 + ratio(excess))
    return limit * (1 + ratio(excess))


def _most(metric: Metric) -> float:
    return WHOLE_PERCENT if metric.unit is Unit.PERCENT else inf


BUDGET_LOOKS: Final = (2, 3, 5)
"""Numbers of runs after which a time may be called over."""

BUDGET_RISK: Final = ALPHA / len(BUDGET_LOOKS)
"""Bonferroni over the looks: several tests of growing data may each be wrong."""

HOPE: Final = 3.0
"""Standard deviations by which the runs to come may beat the fastest one seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How far runs are above the ceiling, in log time, oldest first."""

    runs: tuple[float, ...]
    spread: Spread

    @property
    def shift(self) -> Shift:
        return self.spread.shift(self.runs)

    @property
    def are_over(self) -> bool:
        return bool(self.runs) and min(self.runs) > 0

    @property
    def is_over(self) -> bool:
        looked = len(self.runs) in BUDGET_LOOKS and self.are_over
        return looked and self.shift.p_above(0.0) < BUDGET_RISK

    @property
    def is_below(self) -> bool:
        return bool(self.runs) and self.shift.most(PASS_RISK) < 0

    def may_decide(self, coming: int) -> bool:
        """Whether *coming* runs may yet show that the time is over, or that it is not."""
        if not self.runs or not coming:
            return coming > 0
        total = len(self.runs) + coming
        looks = any(len(self.runs) < look <= total for look in BUDGET_LOOKS)
        if looks and self.are_over:
            return True
        bound = -self.spread.quantile(PASS_RISK) * self.spread.error(total)
        needed = (bound * total - fsum(self.runs)) / coming
        return needed >= min(self.runs) - HOPE * self.spread.sigma


def judge_time_budget(
    metric: Metric,
    runs: Sequence[Measurement],
    limit: float,
    *,
    entry_runs: Sequence[RunSummary] = (),
    prior: Spread | None = None,
) -> Verdict:
    """Judge a time by its fresh *runs*, oldest first, against *limit* > 0 in its unit.

    Or a share of it, below 100 %. At least one of *runs* has measured it, and each a
    number that can be one. How far runs scatter is known from the stored *entry_runs*
    where there are five or a *prior*, else assumed by the kind of device: 1 % on a GPU,
    3 % on a CPU.
    """
    kind = runs[-1].environment.hardware.kind
    stored = stored_values(metric, entry_runs, kind)
    moved = [log_excess(metric, value, limit) for value in stored]
    spread = _spread(moved, prior, Spread.assumed(kind, metric.scatter))
    return _judge_excess(metric, readings(metric, runs), limit, spread, len(stored))


def judge_floor(metric: Metric, runs: Sequence[Measurement], least: float) -> Verdict:
    """Judge a share or a rate by its fresh *runs*, oldest first, against *least*.

    At least one of *runs* has measured it. Runs are taken to scatter as times do on
    such a device, by 1 % on a GPU: a rate is work by the time of a step, and how busy a
    GPU is the time of its kernels by that, which no profiler makes longer.
    """
    seen = readings(metric, runs)
    wrong = [r.value for r in seen if not 0 < r.value <= _most(metric)]
    if wrong:
        return Verdict(
            metric=metric.name,
            outcome=Outcome.INCONCLUSIVE,
            because=f"not a {metric.unit.noun}: {wrong[0]}",
            limit=least,
            unchecked_budget=True,
        )
    spread = Spread.assumed(runs[-1].environment.hardware.kind)
    return _judge_excess(metric, seen, least, spread, 0)


def _judge_excess(
    metric: Metric, seen: tuple[Reading, ...], limit: float, spread: Spread, stored: int
) -> Verdict:
    case = _BudgetCase(
        metric=metric,
        limit=limit,
        stored=stored,
        seen=seen,
        excess=_deciding(_used(metric, seen, limit, spread)),
        bound=_deciding(_bounded(metric, seen, limit, spread)),
    )
    return _verdict(case)


def _spread(moved: Sequence[float], prior: Spread | None, assumed: Spread) -> Spread:
    known = Spread.of(moved, prior) if moved else None
    return assumed if known is None or known.nu < ENOUGH_RUNS - 1 else known


def _used(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Leave out disturbed runs that would not pass alone: they say nothing."""
    moved = [(log_excess(metric, r.value, limit), r.dirty) for r in seen]
    kept = (
        m for m, dirty in moved if not dirty or spread.shift([m]).most(PASS_RISK) < 0
    )
    return Excess(runs=tuple(kept), spread=spread)


def _bounded(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Take the proven excess of each run; no run at all if one proves nothing."""
    proven = [None if _is_floor(metric) else reading.proven for reading in seen]
    kept = [log_excess(metric, value, limit) for value in proven if value is not None]
    return Excess(runs=tuple(kept) if len(kept) == len(seen) else (), spread=spread)


def _is_floor(metric: Metric) -> bool:
    return metric.direction is Direction.HIGHER


def _deciding(excess: Excess) -> Excess:
    """Return the runs up to the first decision, or all runs if there is none."""
    for count in range(1, len(excess.runs)):
        first = Excess(runs=excess.runs[:count], spread=excess.spread)
        # The order of runs counts: whoever looked on until a test rejects would find
        # one.
        if first.is_below or first.is_over:
            return first
    return excess


@dataclass(frozen=True, slots=True, kw_only=True)
class _BudgetCase:
    metric: Metric
    limit: float
    stored: int
    seen: tuple[Reading, ...]
    excess: Excess
    bound: Excess

    @property
    def is_proving(self) -> bool:
        """Whether runs to come may prove what all so far show, disturbed or not."""
        return self.bound.are_over and self.bound.may_decide(remaining_runs(self.seen))

    @property
    def shift(self) -> Shift:
        """What the reported numbers say: of all runs if none could be used."""
        every = (log_excess(self.metric, r.value, self.limit) for r in self.seen)
        return self.excess.spread.shift(self.excess.runs or tuple(every))

    def at(self, excess: float) -> float:
        """Return the value that is *excess* above the ceiling."""
        return value_at(self.metric, excess, self.limit)

    def against_limit(self, excess: float) -> float:
        """Return how far that value is off the ceiling, as a ratio of it."""
        return self.at(excess) / self.limit - 1


def _verdict(case: _BudgetCase) -> Verdict:
    now, excess = case.at(case.shift.estimate), case.excess
    verdict = partial(
        Verdict,
        metric=case.metric.name,
        now=now,
        limit=case.limit,
        evidence=None if _is_floor(case.metric) else _evidence(case),
    )
    compared = against(case.metric, now, case.limit)
    if excess.is_below:
        return verdict(outcome=Outcome.PASS, because=compared)
    if excess.is_over or case.bound.is_over:
        because = f"{compared}, {_why_missed(case)}"
        return verdict(outcome=Outcome.OVER_BUDGET, because=because)
    is_open = case.is_proving or excess.may_decide(remaining_runs(case.seen))
    return verdict(
        outcome=Outcome.INCONCLUSIVE,
        because=f"{compared}{_doubt(case, is_open=is_open)}",
        settled=not is_open,
        proving=case.is_proving,
    )


def _why_missed(case: _BudgetCase) -> str:
    side = "below" if _is_floor(case.metric) else "over"
    if case.excess.is_over:
        each = f"{side} in each of {len(case.excess.runs)} runs"
        return f"{each}, and more than their scatter explains"
    return f"{side} in each of {len(case.bound.runs)} runs{despite(case.seen)}"


def _doubt(case: _BudgetCase, *, is_open: bool) -> str:
    margin = f"cannot tell +-{_margin(case)}"
    seen, remaining = len(case.seen), remaining_runs(case.seen)
    if is_open:
        why = margin if case.excess.runs else f"but disturbed: {dirt(case.seen)},"
        return f" so far, {why} after {seen} of at most {seen + remaining} runs"
    clean = sum(not reading.dirty for reading in case.seen)
    if clean < MAX_RUNS and not remaining:
        return f", but disturbed: {dirt(case.seen)}"
    return f", {margin}"


def _margin(case: _BudgetCase) -> str:
    shift = case.shift
    if case.metric.unit is not Unit.PERCENT or _is_floor(case.metric):
        return f"{100 * ratio(shift.margin(PASS_RISK)):.1f} %"
    upper = case.at(shift.most(PASS_RISK))
    return f"{upper - case.at(shift.estimate):.1f} points"


def _evidence(case: _BudgetCase) -> Evidence:
    excess, shift, spread = case.excess, case.shift, case.excess.spread
    proof = spread.quantile(BUDGET_RISK) + POWER_QUANTILE
    return Evidence(
        estimate=case.against_limit(shift.estimate),
        low=case.against_limit(shift.least(INTERVAL_RISK)),
        high=case.against_limit(shift.most(INTERVAL_RISK)),
        tolerance=0.0,
        detect=0.0,
        runs=len(excess.runs),
        stored_runs=case.stored,
        smallest_detectable=case.against_limit(proof * spread.error(MAX_RUNS)),
        p_regressed=shift.p_above(0.0) if excess.runs else None,
        rule=DecidedBy.BUDGET if excess.runs else DecidedBy.DIRTY,
    )
