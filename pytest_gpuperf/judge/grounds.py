"""Why a time was judged as it was, in a sentence with its numbers."""

from __future__ import annotations

from math import exp

from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import FULL_RUNS
from ..model.evidence import Evidence
from ..model.evidence import Rule
from ..model.metric import Metric
from ..model.verdict import Outcome
from .comparison import Comparison
from .figure import change
from .figure import figure
from .figure import percent
from .reading import dirt
from .spread import ratio


def grounds(
    metric: Metric, case: Comparison, outcome: Outcome, evidence: Evidence
) -> str:
    """Say what decided, or what kept every rule from deciding and what it would take."""
    if outcome is Outcome.REGRESSED:
        return _why_regressed(metric, case, evidence)
    if outcome is Outcome.IMPROVED:
        return _why_improved(metric, case, evidence)
    if outcome is Outcome.PASS:
        return _why_passed(metric, case, evidence)
    return f"{_doubt(metric, case, evidence)}; {smallest_seen(evidence)}"


def smallest_seen(evidence: Evidence) -> str:
    """Say how small a slowdown would have been noticed."""
    return (
        "the smallest slowdown this machine could have seen is "
        f"{100 * evidence.smallest_detectable:.1f} %"
    )


def _why_regressed(metric: Metric, case: Comparison, evidence: Evidence) -> str:
    beyond = _tolerated(metric, case)
    granted = f", {_granted(case)} granted to the machine" if case.is_slowed else ""
    return (
        f"{_estimate(evidence)}, more than {beyond} slower at "
        f"{_chance(evidence.p_regressed)}{granted}; each of {evidence.runs} runs is "
        f"more than {beyond} slower than {_edge(metric, case, slow=True)}"
    )


def _why_improved(metric: Metric, case: Comparison, evidence: Evidence) -> str:
    beyond = _tolerated(metric, case)
    return (
        f"{_estimate(evidence)}, more than {beyond} faster at "
        f"{_chance(evidence.p_improved)}; each of {evidence.runs} runs is "
        f"more than {beyond} faster than {_edge(metric, case, slow=False)}"
    )


def _why_passed(metric: Metric, case: Comparison, evidence: Evidence) -> str:
    typical = case.reference.typical
    now = typical * (1 + evidence.estimate)
    return (
        f"{figure(metric, now)}, baseline {figure(metric, typical)}, "
        f"{change(now, typical)}"
    )


def _doubt(metric: Metric, case: Comparison, evidence: Evidence) -> str:
    rule = evidence.rule
    if rule is Rule.MORE_RUNS:
        seen = len(case.seen)
        return f"undecided after {seen} of at most {seen + case.remaining} runs"
    if rule is Rule.TOO_FEW_STORED:
        stored = case.reference.runs
        return f"too few stored runs ({stored}, {ENOUGH_RUNS} are needed to blame)"
    if rule is Rule.DIRTY:
        return f"dirty: {dirt(change.reading for change in case.seen)}"
    if rule is Rule.SUITE_SHIFT:
        return _suite_shifted(case)
    if rule is Rule.ENVIRONMENT:
        return _machine_shifted(case)
    return _noise(metric, case, evidence)


def _noise(metric: Metric, case: Comparison, evidence: Evidence) -> str:
    if case.is_decided and case.p_regressed < case.climate.alpha:
        return (
            f"noise: {_estimate(evidence)}, but not each of {evidence.runs} runs is "
            f"more than {_tolerated(metric, case)} slower than "
            f"{_edge(metric, case, slow=True)}"
        )
    return (
        f"noise too large: any change between {_signed(evidence.low)} and "
        f"{_signed(evidence.high)} would explain these runs"
    )


def _suite_shifted(case: Comparison) -> str:
    shift = ratio(case.climate.shift)
    tests = f"the tests of this run moved {_signed(shift)} together"
    return f"suite-wide shift: {tests}, {_consequence(case)}"


def _machine_shifted(case: Comparison) -> str:
    pace = "slower" if case.is_slowed else "faster"
    sentinels = f"its sentinels say that this machine is {_granted(case)} {pace}"
    return f"environment: {sentinels} than with the baseline, {_consequence(case)}"


def _consequence(case: Comparison) -> str:
    if case.is_slowed:
        return "which is taken off before code is blamed"
    return "behind which a slowdown could hide"


def _granted(case: Comparison) -> str:
    return f"{100 * ratio(case.granted):.1f} %"


def _estimate(evidence: Evidence) -> str:
    interval = f"{_signed(evidence.low)} to {_signed(evidence.high)}"
    return f"{_signed(evidence.estimate)} (95 %: {interval})"


def _chance(p: float | None) -> str:
    return f"p = {p:.1g}"


def _signed(change_ratio: float) -> str:
    return f"{100 * change_ratio:+.1f} %"


def _tolerated(metric: Metric, case: Comparison) -> str:
    tolerance = case.limits.tolerance
    if not case.limits.floored:
        return percent(tolerance)
    return f"{figure(metric, tolerance * case.reference.typical)} (the floor)"


def _edge(metric: Metric, case: Comparison, *, slow: bool) -> str:
    """Name the stored run that the rank test compares with."""
    reference = case.reference
    second = "second " if reference.runs >= FULL_RUNS else ""
    word, moved = ("slowest", reference.slow) if slow else ("fastest", reference.fast)
    place = figure(metric, reference.typical * exp(moved))
    return f"the {second}{word} of {reference.runs} stored runs, {place}"
