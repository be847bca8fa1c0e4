"""Times, and shares of them, against a ceiling: over only if proven, passed only if proven.

After 2, 3 and 5 runs a t test at a third of alpha asks whether the mean is over, and
every run must be; after any run it passes if the upper 95 % bound is below. The first
rule that is met decides, later runs do not reopen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, inf, log
from typing import Final

from ..model.baseline import ENOUGH_RUNS, RunSummary
from ..model.measurement import Measurement
from ..model.metric import Direction, Metric, Unit
from ..model.verdict import DecidedBy, Evidence, Outcome, Verdict
from .comparison import INTERVAL_RISK, mean
from .readings import (
    MAX_RUNS,
    WHOLE_PERCENT,
    Reading,
    despite,
    dirt,
    impossible,
    readings,
    remaining_runs,
    stored_values,
)
from .statistics import PASS_RISK, POWER_QUANTILE, Spread, ratio
from .tails import t_sf
from .wording import against


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
        return limit / (1 + ratio(excess))
    if metric.unit is Unit.PERCENT:
        return WHOLE_PERCENT - (WHOLE_PERCENT - limit) / (1 + ratio(excess))
    return limit * (1 + ratio(excess))


BUDGET_LOOKS: Final = (2, 3, 5)
"""Numbers of runs after which a time may be called over."""

HOPE: Final = 3.0
"""Standard deviations by which the runs to come may beat the fastest one seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How far runs are above the ceiling, in log time, oldest first."""

    runs: tuple[float, ...]
    spread: Spread

    @property
    def error(self) -> float:
        return self.spread.error(len(self.runs))

    @property
    def margin(self) -> float:
        """Half-width of the one-sided interval of these runs."""
        return self.spread.quantile(PASS_RISK) * self.error

    @property
    def p_over(self) -> float:
        """Chance of a mean so high if the time were the ceiling."""
        return t_sf(mean(self.runs) / self.error, self.spread.nu)

    def is_over(self, alpha: float) -> bool:
        looked = len(self.runs) in BUDGET_LOOKS and min(self.runs) > 0
        # Bonferroni over the looks: several tests of growing data may each be wrong.
        return looked and self.p_over < alpha / len(BUDGET_LOOKS)

    @property
    def is_below(self) -> bool:
        return bool(self.runs) and mean(self.runs) + self.margin < 0

    def may_decide(self, coming: int) -> bool:
        """Whether *coming* runs may yet show that the time is over, or that it is not."""
        if not self.runs or not coming:
            return coming > 0
        total = len(self.runs) + coming
        looks = any(len(self.runs) < look <= total for look in BUDGET_LOOKS)
        if looks and min(self.runs) > 0:
            return True
        bound = -self.spread.quantile(PASS_RISK) * self.spread.error(total)
        needed = (bound * total - fsum(self.runs)) / coming
        return needed >= min(self.runs) - HOPE * self.spread.sigma


def judge_time_budget(  # noqa: PLR0913  keywords, each a number of its own
    metric: Metric,
    runs: Sequence[Measurement],
    limit: float,
    *,
    entry_runs: Sequence[RunSummary] = (),
    prior: Spread | None = None,
    alpha: float = 0.01,
) -> Verdict:
    """Judge a time by its fresh *runs*, oldest first, against *limit* > 0 in its unit.

    Or a share of it, below 100 %. At least one of *runs* has measured it. How far runs
    scatter is known from the stored *entry_runs* where there are five or a *prior*, else
    assumed by the kind of device: 1 % on a GPU, 3 % on a CPU.
    """
    nonsense = impossible(metric, runs)
    if nonsense is not None:
        return Verdict(
            metric=metric.name,
            outcome=Outcome.INCONCLUSIVE,
            because=nonsense,
            limit=limit,
        )
    kind = runs[-1].environment.hardware.kind
    stored = stored_values(metric, entry_runs, kind)
    moved = [log_excess(metric, value, limit) for value in stored]
    spread = _spread(moved, prior, Spread.assumed(kind, metric.scatter))
    return judge_excess(
        metric, readings(metric, runs), limit, spread, alpha=alpha, stored=len(stored)
    )


def judge_excess(  # noqa: PLR0913  keywords, each a number of its own
    metric: Metric,
    seen: tuple[Reading, ...],
    limit: float,
    spread: Spread,
    *,
    alpha: float,
    stored: int = 0,
) -> Verdict:
    """Judge what runs showed, oldest first, that scatter by *spread*, against *limit*."""
    case = _BudgetCase(
        metric=metric,
        limit=limit,
        alpha=alpha,
        stored=stored,
        seen=seen,
        excess=deciding(used(metric, seen, limit, spread), alpha),
        bound=deciding(bounded(metric, seen, limit, spread), alpha),
    )
    return _verdict(case)


def _spread(moved: Sequence[float], prior: Spread | None, assumed: Spread) -> Spread:
    known = Spread.of(moved, prior) if moved else None
    return assumed if known is None or known.nu < ENOUGH_RUNS - 1 else known


def used(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Leave out disturbed runs that would not pass alone: they say nothing."""
    quick = -Excess(runs=(0.0,), spread=spread).margin
    moved = [(log_excess(metric, r.value, limit), r.dirty) for r in seen]
    kept = tuple(excess for excess, dirty in moved if not dirty or excess < quick)
    return Excess(runs=kept, spread=spread)


def bounded(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Take the proven excess of each run; no run at all if one proves nothing."""
    proven = [reading.proven for reading in seen]
    kept = [log_excess(metric, value, limit) for value in proven if value is not None]
    return Excess(runs=tuple(kept) if len(kept) == len(seen) else (), spread=spread)


def deciding(excess: Excess, alpha: float) -> Excess:
    """Return the runs up to the first decision, or all runs if there is none."""
    for count in range(1, len(excess.runs)):
        first = Excess(runs=excess.runs[:count], spread=excess.spread)
        # The order of runs counts: whoever looked on until a test rejects would find
        # one.
        if first.is_below or first.is_over(alpha):
            return first
    return excess


@dataclass(frozen=True, slots=True, kw_only=True)
class _BudgetCase:
    metric: Metric
    limit: float
    alpha: float
    stored: int
    seen: tuple[Reading, ...]
    excess: Excess
    bound: Excess

    @property
    def is_proving(self) -> bool:
        """Whether runs to come may prove what all so far show, disturbed or not."""
        coming = remaining_runs(self.seen)
        over = bool(self.bound.runs) and min(self.bound.runs) > 0
        return over and self.bound.may_decide(coming)

    @property
    def shown(self) -> Excess:
        """The runs behind the reported numbers: all of them if none could be used."""
        if self.excess.runs:
            return self.excess
        every = tuple(log_excess(self.metric, r.value, self.limit) for r in self.seen)
        return replace(self.excess, runs=every)

    @property
    def now(self) -> float:
        return self.at(mean(self.shown.runs))

    def at(self, excess: float) -> float:
        """Return the value that is *excess* above the ceiling."""
        return value_at(self.metric, excess, self.limit)

    def against_limit(self, excess: float) -> float:
        """Return how far that value is off the ceiling, as a ratio of it."""
        return self.at(excess) / self.limit - 1


def _verdict(case: _BudgetCase) -> Verdict:
    verdict = partial(
        Verdict,
        metric=case.metric.name,
        now=case.now,
        limit=case.limit,
        evidence=_evidence(case),
    )
    compared, excess = against(case.metric, case.now, case.limit), case.excess
    if excess.is_below:
        return verdict(outcome=Outcome.PASS, because=compared)
    if excess.is_over(case.alpha):
        because = (
            f"{compared}, over in each of {len(excess.runs)} runs, and more than their "
            "scatter explains"
        )
        return verdict(outcome=Outcome.OVER_BUDGET, because=because)
    if case.bound.is_over(case.alpha):
        because = (
            f"{compared}, over in each of {len(case.bound.runs)} runs"
            f"{despite(case.seen)}"
        )
        return verdict(outcome=Outcome.OVER_BUDGET, because=because)
    is_open = case.is_proving or excess.may_decide(remaining_runs(case.seen))
    because = f"{compared}{_doubt(case, is_open=is_open)}"
    return verdict(
        outcome=Outcome.INCONCLUSIVE,
        because=because,
        settled=not is_open,
        proving=case.is_proving,
    )


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
    if case.metric.unit is not Unit.PERCENT:
        return f"{100 * ratio(case.shown.margin):.1f} %"
    upper = case.at(mean(case.shown.runs) + case.shown.margin)
    return f"{upper - case.now:.1f} points"


def _evidence(case: _BudgetCase) -> Evidence:
    excess, shown = case.excess, case.shown
    estimate, spread = mean(shown.runs), shown.spread
    half = spread.quantile(INTERVAL_RISK) * shown.error
    proof = spread.quantile(case.alpha / len(BUDGET_LOOKS)) + POWER_QUANTILE
    return Evidence(
        estimate=case.against_limit(estimate),
        low=case.against_limit(estimate - half),
        high=case.against_limit(estimate + half),
        tolerance=0.0,
        detect=0.0,
        runs=len(excess.runs),
        stored_runs=case.stored,
        smallest_detectable=case.against_limit(proof * spread.error(MAX_RUNS)),
        p_regressed=excess.p_over if excess.runs else None,
        rule=DecidedBy.BUDGET if excess.runs else DecidedBy.DIRTY,
    )


# A share that must not fall below a floor: missed only if proven, met only if proven.
#
# The rules are those of time budgets, upside down: after 2, 3 and 5 runs a t test at a
# third of alpha asks whether the mean is below, and every run must be.


def judge_floor(
    metric: Metric, runs: Sequence[Measurement], least: float, *, alpha: float = 0.01
) -> Verdict:
    """Judge a share or a rate by its fresh *runs*, oldest first, against *least*.

    At least one of *runs* has measured it. Runs are taken to scatter as times do on
    such a device, by 1 % on a GPU: a rate is work by the time of a step, and how busy a
    GPU is the time of its kernels by that, which no profiler makes longer.
    """
    seen = readings(metric, runs)
    verdict = partial(Verdict, metric=metric.name, limit=least)
    most = WHOLE_PERCENT if metric.unit is Unit.PERCENT else inf
    wrong = [r.value for r in seen if not 0 < r.value <= most]
    if wrong:
        because = f"not a {metric.unit.noun}: {wrong[0]}"
        return verdict(
            outcome=Outcome.INCONCLUSIVE, because=because, unchecked_budget=True
        )
    spread = Spread.assumed(runs[-1].environment.hardware.kind)
    missing = deciding(used(metric, seen, least, spread), alpha)
    shown = missing.runs or tuple(log_excess(metric, r.value, least) for r in seen)
    now = min(most, value_at(metric, mean(shown), least))
    compared = against(metric, now, least)
    if missing.is_below:
        return verdict(outcome=Outcome.PASS, because=compared, now=now)
    if missing.is_over(alpha):
        because = (
            f"{compared}, below in each of {len(missing.runs)} runs, and more than their "
            "scatter explains"
        )
        return verdict(outcome=Outcome.OVER_BUDGET, because=because, now=now)
    is_open = missing.may_decide(remaining_runs(seen))
    return verdict(
        outcome=Outcome.INCONCLUSIVE,
        because=f"{compared}{_why_unproven(missing, seen, is_open=is_open)}",
        now=now,
        settled=not is_open,
    )


def _why_unproven(missing: Excess, seen: Sequence[Reading], *, is_open: bool) -> str:
    if not missing.runs:
        why = f", but disturbed: {dirt(seen)}"
    else:
        why = f", cannot tell +-{100 * ratio(missing.margin):.1f} %"
    if not is_open:
        return why
    most = len(seen) + remaining_runs(seen)
    return f" so far{why} after {len(seen)} of at most {most} runs"
