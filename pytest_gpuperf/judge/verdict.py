"""All verdicts on one test: what could not be judged, then budgets, then the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Final

from ..model.baseline import Entry
from ..model.baseline import RunSummary
from ..model.budget import Tolerance
from ..model.measurement import Measurement
from ..model.metric import METRICS
from ..model.metric import Direction
from ..model.metric import Kind
from ..model.metric import Metric
from ..model.rank_metric import RANKED
from ..model.step_metric import SLOPE
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from .allowance import floored
from .allowance import noticed
from .allowance import tolerated
from .budget import ResolvedBudget
from .budget import ceiling
from .budget import judge_exact_budget
from .climate import Climate
from .climate import Sentinels
from .exact import judge_exact
from .floor import judge_floor
from .guards import guarded
from .reading import impossible
from .reading import readings
from .reading import stored_values
from .slope import judge_slope_budget
from .stored import judge_stored
from .time_budget import judge_time_budget


NOT_RECORDED: Final = "not recorded"
"""Stands for the version of software that only one side knows of."""

ALONE: Final = Climate()
"""Of a test that is judged by itself."""


def judge(  # noqa: PLR0913, PLR0917  what the author says, what was measured, then and now
    test: str,
    runs: Sequence[Measurement],
    budget: ResolvedBudget,
    tolerance: Tolerance,
    entry: Entry | None,
    climate: Climate = ALONE,
) -> TestVerdict:
    """Judge *test* by its *runs*, at least one, oldest first, in the suite's *climate*.

    A metric with a budget and a baseline gets a verdict for each, the budget's first.
    """
    last = runs[-1]
    changed = _changed(entry, last.environment.software)
    case = _Case(
        runs=runs,
        budget=budget,
        tolerance=tolerance,
        entry=entry,
        climate=climate,
        changed=changed,
    )
    return TestVerdict(
        test=test,
        verdicts=tuple(
            v for metrics in case.quantities for v in _judge_any(case, metrics)
        ),
        findings=last.findings,
        runs=len(runs),
        changed=changed,
        remarks=last.remarks,
        snapshot=last.snapshot,
        diagnosis=last.diagnosis,
    )


@cache
def quantities() -> tuple[tuple[Metric, ...], ...]:
    """Group the metrics that one budget keyword limits: a device measures one of them."""
    groups: dict[str, list[Metric]] = {}
    for metric in METRICS.values():
        groups.setdefault(metric.budget or metric.name, []).append(metric)
    return tuple(tuple(metrics) for metrics in groups.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    runs: Sequence[Measurement]
    budget: ResolvedBudget
    tolerance: Tolerance
    entry: Entry | None
    climate: Climate
    changed: Mapping[str, tuple[str, str]]

    @property
    def entry_runs(self) -> tuple[RunSummary, ...]:
        return () if self.entry is None else self.entry.runs

    @property
    def quantities(self) -> list[tuple[Metric, ...]]:
        """The quantities that were measured, stored, missed or limited; of most, none."""
        named = {*self.budget.limits, *self.budget.unbound}
        for run in self.runs:
            named.update(run.times, run.exact, run.missed, run.unmeasured)
        for kept in self.entry_runs:
            named.update(kept.times, kept.exact)
        return [
            metrics
            for metrics in quantities()
            if metrics[0].budget in named or any(m.name in named for m in metrics)
        ]

    def limit(self, metric: Metric) -> float | None:
        limit = self.budget.limits.get(metric.budget or "")
        return None if limit is None else ceiling(metric, limit)

    def stored(self, metric: Metric) -> tuple[float, ...]:
        if not metric.gated:
            return ()
        kind = self.runs[-1].environment.hardware.kind
        return stored_values(metric, self.entry_runs, kind)

    @property
    def measured_nothing(self) -> bool:
        return not any(run.times or run.exact for run in self.runs)

    def why_missed(self, metric: Metric) -> str | None:
        reasons = (run.missed.get(metric.name) for run in reversed(self.runs))
        return next((reason for reason in reasons if reason), None)

    def why_unmeasured(self, metric: Metric) -> str | None:
        reasons = (run.unmeasured.get(metric.name) for run in reversed(self.runs))
        return next((reason for reason in reasons if reason), None)


def _judge_any(case: _Case, metrics: Sequence[Metric]) -> Iterator[Verdict]:
    measured = [metric for metric in metrics if readings(metric, case.runs)]
    unbound = case.budget.unbound.get(metrics[0].budget or "")
    if unbound is not None:
        metric = next(iter(measured), metrics[0])
        yield _not_judged(metric, unbound)
    elif not measured:
        yield from _judge_unmeasured(case, metrics)
    for metric in measured:
        yield from _judge_measured(case, metric)


def _judge_unmeasured(case: _Case, metrics: Sequence[Metric]) -> Iterator[Verdict]:
    """Say why there is no number, where a budget or a baseline asks for one."""
    metric = next(
        (m for m in metrics if case.stored(m)),
        next(
            (m for m in metrics if case.why_missed(m) or case.why_unmeasured(m)),
            metrics[0],
        ),
    )
    missed, reason = case.why_missed(metric), case.why_unmeasured(metric)
    is_asked = case.limit(metric) is not None or bool(case.stored(metric))
    if missed and (is_asked or metric.gated):
        yield Verdict(metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=missed)
    elif is_asked or (_is_expected(metric) and reason and case.measured_nothing):
        kind = case.runs[-1].environment.hardware.kind.value
        silent = f"the {kind} device does not measure {metric.budget or metric.name}"
        yield _not_judged(metric, reason or silent)


def _is_expected(metric: Metric) -> bool:
    """Whether any test has it: only one on several ranks has what those are judged by."""
    return metric.gated and metric not in RANKED


def _judge_measured(case: _Case, metric: Metric) -> Iterator[Verdict]:
    limit, stored = case.limit(metric), case.stored(metric)
    if limit is None and not metric.gated:
        return
    if limit is not None and metric.direction is Direction.HIGHER:
        yield judge_floor(metric, case.runs, limit, alpha=case.climate.alpha)
        return
    nonsense = impossible(metric, case.runs)
    if nonsense is not None:
        yield Verdict(
            metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=nonsense
        )
        return
    if limit is not None:
        yield _judge_budget(case, metric, limit)
    if stored:
        yield _judge_baseline(case, metric, stored)
    elif limit is None:
        yield _no_baseline(case, metric)


def _judge_budget(case: _Case, metric: Metric, limit: float) -> Verdict:
    if metric.kind is Kind.EXACT:
        return judge_exact_budget(metric, case.runs, limit)
    if metric == SLOPE:
        return judge_slope_budget(metric, case.runs, limit, alpha=case.climate.alpha)
    return judge_time_budget(
        metric,
        case.runs,
        limit,
        entry_runs=case.entry_runs,
        prior=case.climate.prior if metric.gated else None,
        alpha=case.climate.alpha,
    )


def _judge_baseline(case: _Case, metric: Metric, stored: Sequence[float]) -> Verdict:
    tolerance = tolerated(metric, case.tolerance)
    metric = floored(metric, case.tolerance)
    if metric.kind is Kind.EXACT:
        torch = case.changed.get("torch")
        if torch is not None and NOT_RECORDED in torch:
            torch = None
        return judge_exact(metric, case.runs, stored, tolerance=tolerance, torch=torch)
    return judge_stored(
        metric,
        guarded(case.runs, case.entry_runs),
        case.entry_runs,
        tolerance=tolerance,
        detect=noticed(metric, case.tolerance),
        floor=metric.floor,
        climate=case.climate,
        sentinels=Sentinels.of(case.runs, case.entry_runs),
    )


def _not_judged(metric: Metric, because: str) -> Verdict:
    return Verdict(metric=metric.name, outcome=Outcome.NOT_JUDGED, because=because)


def _no_baseline(case: _Case, metric: Metric) -> Verdict:
    elsewhere = (metric.budget or "") in case.budget.unbound
    because = "no baseline and no budget" + (" that binds here" if elsewhere else "")
    seen = [reading.value for reading in readings(metric, case.runs)]
    return Verdict(
        metric=metric.name,
        outcome=Outcome.NO_BASELINE,
        because=because,
        now=median(seen) if metric.kind is Kind.NOISY else max(seen),
    )


def _changed(
    entry: Entry | None, software: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    if entry is None:
        return {}
    return {
        name: (
            entry.software.get(name, NOT_RECORDED),
            software.get(name, NOT_RECORDED),
        )
        for name in sorted({*entry.software, *software})
        if entry.software.get(name) != software.get(name)
    }
