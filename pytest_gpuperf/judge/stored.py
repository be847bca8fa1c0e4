"""Times against the stored baseline: a t test, a rank test and an upper bound.

A pass needs any number of runs: the upper 95 % bound of the slowdown lies below
``detect``. Blame needs five clean ones, and two proofs that a slowdown exceeds the
tolerance. The moderated t test knows how far runs scatter, but believes in normal
noise. The rank test believes nothing: if nothing changed, all of 5 fresh runs stand
above the second largest of R stored ones with probability 6 / C(R + 5, 5), 0.5 % for
8. What is neither passed nor blamed after five clean runs is INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from math import log

from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import RunSummary
from ..model.environment import DeviceKind
from ..model.evidence import Evidence
from ..model.evidence import Rule
from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.typical import typical_time
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .climate import Climate
from .climate import Sentinels
from .climate import discounts
from .comparison import INTERVAL_RISK
from .comparison import Change
from .comparison import Comparison
from .comparison import mean
from .grounds import grounds
from .prior import Prior
from .reading import impossible
from .reading import readings
from .reading import stored_values
from .reference import Limits
from .reference import Reference
from .spread import ratio
from .spread import scatter


def judge_stored(  # noqa: PLR0913  keywords, each a number of its own
    metric: Metric,
    runs: Sequence[Measurement],
    entry_runs: Sequence[RunSummary],
    *,
    tolerance: float,
    detect: float,
    floor: float,
    climate: Climate,
    sentinels: Sentinels | None = None,
) -> Verdict:
    """Judge a time by its fresh *runs*, oldest first, against the stored *entry_runs*.

    At least one of each have the metric. ``tolerance`` is the slowdown that is never
    blamed, ``detect`` the one that never passes in silence, both ratios; ``floor``,
    in the metric's unit, is a change that is never blamed either.
    """
    kind = runs[-1].environment.hardware.kind
    stored = stored_values(metric, entry_runs, kind)
    nonsense = impossible(metric, runs) or _impossible_stored(stored)
    if nonsense is not None:
        return Verdict(
            metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=nonsense
        )
    reference = Reference.of(stored, kind, climate.prior)
    comparison = Comparison.of(
        reference,
        Limits.of(reference.typical, tolerance=tolerance, detect=detect, floor=floor),
        climate,
        _changes(metric, runs, reference, climate, sentinels),
    )
    outcome, rule = _ruling(comparison)
    return _verdict(metric, comparison, outcome, rule)


def log_shift(
    metric: Metric, run: Measurement, entry_runs: Sequence[RunSummary]
) -> float | None:
    """Return how far *run* moved from the typical stored run, in log time.

    ``None`` where either has no such time, or one that cannot be.
    """
    stored = stored_values(metric, entry_runs, run.environment.hardware.kind)
    seen = readings(metric, [run])
    if not (seen and stored) or impossible(metric, [run]) or _impossible_stored(stored):
        return None
    return log(seen[0].value / typical_time(stored))


def log_variance(
    metric: Metric, entry_runs: Sequence[RunSummary], kind: DeviceKind
) -> tuple[float, float] | None:
    """Return the variance of the stored runs in log time and its degrees of freedom.

    ``None`` below two runs, or where one of them cannot be.
    """
    stored = stored_values(metric, entry_runs, kind)
    nu = len(stored) - 1
    if nu < 1 or _impossible_stored(stored):
        return None
    return scatter([log(value) for value in stored]) / nu, float(nu)


def reference_of(
    metric: Metric,
    entry_runs: Sequence[RunSummary],
    kind: DeviceKind,
    prior: Prior | None,
) -> Reference | None:
    """Return what the stored runs say; ``None`` without any, or if one cannot be."""
    stored = stored_values(metric, entry_runs, kind)
    if not stored or _impossible_stored(stored):
        return None
    return Reference.of(stored, kind, prior)


def _impossible_stored(stored: Sequence[float]) -> str | None:
    wrong = [value for value in stored if not (isfinite(value) and value > 0)]
    if not wrong:
        return None
    return f"the baseline holds what is not a time: {wrong[0]}; refresh it"


def _changes(
    metric: Metric,
    runs: Sequence[Measurement],
    reference: Reference,
    climate: Climate,
    sentinels: Sentinels | None,
) -> tuple[Change, ...]:
    found = zip(runs, discounts(len(runs), sentinels, climate), strict=True)
    return tuple(
        Change(
            moved=log(reading.value / reference.typical),
            reading=reading,
            discount=discount,
        )
        for run, discount in found
        for reading in readings(metric, [run])
    )


def _ruling(case: Comparison) -> tuple[Outcome, Rule]:
    if case.is_regressed:
        return Outcome.REGRESSED, Rule.T_AND_RANK
    if case.is_improved:
        return Outcome.IMPROVED, Rule.T_AND_RANK
    if case.passes:
        return Outcome.PASS, Rule.UPPER_BOUND
    if case.may_pass or case.may_regress:
        return Outcome.INCONCLUSIVE, Rule.MORE_RUNS
    return Outcome.INCONCLUSIVE, _doubt(case)


def _doubt(case: Comparison) -> Rule:
    if case.reference.runs < ENOUGH_RUNS:
        return Rule.TOO_FEW_STORED
    if case.is_discounted_only:
        return Rule.SUITE_SHIFT if case.is_suite_wide else Rule.ENVIRONMENT
    return Rule.NOISE if case.can_blame else Rule.DIRTY


def _verdict(metric: Metric, case: Comparison, outcome: Outcome, rule: Rule) -> Verdict:
    counted = case.clean if outcome is Outcome.IMPROVED else case.used
    evidence = _evidence(case, counted, rule)
    chased = outcome is Outcome.PASS and case.may_improve
    return Verdict(
        metric=metric.name,
        outcome=outcome,
        because=grounds(metric, case, outcome, evidence),
        now=case.reference.typical * (1 + evidence.estimate),
        baseline=case.reference.typical,
        limit=case.reference.typical * (1 + ratio(case.blame)),
        settled=rule is not Rule.MORE_RUNS and not chased,
        evidence=evidence,
    )


def _evidence(case: Comparison, counted: tuple[Change, ...], rule: Rule) -> Evidence:
    shown = counted or case.seen
    estimate = mean([change.moved for change in shown])
    spread = case.reference.spread
    margin = spread.quantile(INTERVAL_RISK) * case.error(len(shown))
    discount = [c.discount.slower - c.discount.faster for c in shown]
    return Evidence(
        estimate=ratio(estimate),
        low=ratio(estimate - margin),
        high=ratio(estimate + margin),
        tolerance=case.limits.tolerance,
        detect=case.limits.detect,
        runs=len(counted),
        stored_runs=case.reference.runs,
        smallest_detectable=ratio(case.smallest),
        discount=ratio(mean(discount)),
        p_regressed=case.p_regressed if case.is_decided else None,
        p_improved=case.p_improved if case.is_decided else None,
        rule=rule,
    )
