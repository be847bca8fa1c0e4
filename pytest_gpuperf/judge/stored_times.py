"""Times against the stored baseline: a t test, a rank test and an upper bound.

A pass needs any number of runs: the upper 95 % bound of the slowdown lies below
``detect``. Blame needs five clean ones, and two proofs that a slowdown exceeds the
tolerance. The moderated t test knows how far runs scatter, but believes in normal
noise. The rank test believes nothing: if nothing changed, all of 5 fresh runs are
above the second largest of R stored ones with probability 6 / C(R + 5, 5), 0.5 % for
8. Disturbed runs blame by the least that they would have shown on a quiet machine, and
what is four times the slowest stored run in each of two runs needs no third. What is
neither passed nor blamed after five clean runs is INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, isclose, isfinite, log
from typing import Final

from ..model.baseline import (
    ENOUGH_RUNS,
    FULL_RUNS,
    RunSummary,
    is_of_one_session,
    typical_time,
)
from ..model.environment import DeviceKind
from ..model.measurement import Measurement
from ..model.metrics import Metric
from ..model.verdict import DecidedBy, Evidence, Outcome, Verdict
from .comparison import FAR, RunChange, TimeComparison
from .context import FAR_SLOWER, Discount, Sentinels, SuiteContext, discounts
from .readings import (
    Limits,
    Reading,
    StoredTimes,
    change,
    despite,
    dirt,
    figure,
    impossible,
    percent,
    readings,
    sessions_of,
    shift_of,
    signed,
    stored_values,
    times,
)
from .statistics import (
    ALPHA,
    ASSUMED_SHIFT,
    INTERVAL_RISK,
    Spread,
    mean,
    ratio,
    scatter,
    shift_variance,
    without_odd,
)


# Why a time was judged as it was, in a sentence with its numbers.

LEAST_SHOWN: Final = 0.0005
"""A ratio below it would be written as 0.0 %."""


def grounds(
    metric: Metric, case: TimeComparison, outcome: Outcome, evidence: Evidence
) -> str:
    """Say what decided, or what kept every rule from deciding and what it would take."""
    if outcome in {Outcome.REGRESSED, Outcome.IMPROVED}:
        return _why_moved(metric, case, outcome, evidence)
    if outcome is Outcome.PASS:
        return _why_passed(metric, case, evidence)
    say = _INCONCLUSIVE.get(evidence.rule)
    why = say(case, evidence) if say else _noise(metric, case, evidence)
    # What is seen beyond noise needs no word on how little would be seen.
    is_seen = evidence.rule is DecidedBy.NOISE and evidence.low > 0
    return why if is_seen else f"{why}; {smallest_seen(evidence)}"


def smallest_seen(evidence: Evidence) -> str:
    """Say how small a slowdown would have been noticed."""
    return (
        "this machine can only detect slowdowns above "
        f"{100 * evidence.smallest_detectable:.1f} %"
    )


def _why_moved(
    metric: Metric, case: TimeComparison, outcome: Outcome, evidence: Evidence
) -> str:
    """Say how far each run is from which stored one, and what the machine was granted."""
    if outcome is Outcome.IMPROVED:
        faster = f"{_tolerated(metric, case)} faster than"
        each = _each(evidence, faster, _edge(metric, case, slow=False))
        return f"{each}; {_range(evidence)}"
    each = _each_slower(metric, case, evidence)
    if evidence.rule is DecidedBy.T_AND_RANK:
        return f"{each}; {_range(evidence)}{_taken_off(case)}"
    return f"{times(1 + evidence.estimate)} the stored time; {each}{_despite(case)}"


def _each_slower(metric: Metric, case: TimeComparison, evidence: Evidence) -> str:
    is_far = evidence.rule is DecidedBy.FAR
    slower = f"{_tolerated(metric, case)} slower than"
    moved = f"{times(FAR)} as slow as" if is_far else slower
    return _each(evidence, moved, _edge(metric, case, slow=True))


def _each(evidence: Evidence, moved: str, edge: str) -> str:
    return f"each of {evidence.runs} runs is more than {moved} {edge}"


def _despite(case: TimeComparison) -> str:
    """Say what was subtracted for the machine before code was blamed."""
    if any(change.reading.dirty for change in case.seen):
        return despite(change.reading for change in case.seen)
    return _taken_off(case)


def _taken_off(case: TimeComparison) -> str:
    return f", {_granted(case)} due to the machine" if _is_granted(case) else ""


def _why_passed(metric: Metric, case: TimeComparison, evidence: Evidence) -> str:
    typical = case.reference.typical
    now = typical * (1 + evidence.estimate)
    return (
        f"{figure(metric, now)}, baseline {figure(metric, typical)}, "
        f"{change(now, typical)}"
    )


def _too_early(case: TimeComparison, _evidence: Evidence) -> str:
    seen = len(case.seen)
    return f"inconclusive after {seen} of at most {seen + case.remaining} runs"


def _too_few_stored(case: TimeComparison, _evidence: Evidence) -> str:
    stored = case.reference.runs
    return f"only {stored} stored runs, and {ENOUGH_RUNS} are needed to blame a test"


def _disturbed(case: TimeComparison, _evidence: Evidence) -> str:
    return f"disturbed: {dirt(change.reading for change in case.seen)}"


def _noise(metric: Metric, case: TimeComparison, evidence: Evidence) -> str:
    if case.is_decided and case.all_slow and case.suite_context.burst:
        return _unsteady(case, evidence)
    if evidence.low > 0:
        low, high = (f"{100 * ratio:.1f} %" for ratio in (evidence.low, evidence.high))
        return f"slower by {low} to {high}, {_why_not_blamed(metric, case, evidence)}"
    others = f", as {_others(case)}" if case.suite_context.burst else ""
    return (
        "too noisy to tell: the real change is between "
        f"{signed(evidence.low)} and {signed(evidence.high)}{others}"
    )


def _why_not_blamed(metric: Metric, case: TimeComparison, evidence: Evidence) -> str:
    """Say what keeps a slowdown that is seen from being one of the code."""
    tolerated = _tolerated(metric, case)
    if case.is_decided and case.p_regressed < ALPHA:
        return f"but not {_each_slower(metric, case, evidence)}"
    if evidence.high <= evidence.tolerance:
        return f"within the tolerated {tolerated} if this machine is as fast as it was"
    if evidence.low < evidence.tolerance:
        return f"around the tolerated {tolerated}"
    if _is_granted(case):
        return f"of which {_granted(case)} may be the machine's"
    return f"but not so surely beyond {tolerated} that the code is to blame"


def _unsteady(case: TimeComparison, evidence: Evidence) -> str:
    """Say that the machine itself is slower for a while."""
    return (
        f"unsteady machine: {_range(evidence)}, as the runs of the tests that were "
        f"measured again differ much more than stored ones: {_others(case)}"
    )


def _others(case: TimeComparison) -> str:
    return f"others may slow a run by {100 * ratio(case.suite_context.burst):.1f} %"


def _unless_shifted(case: TimeComparison, evidence: Evidence) -> str:
    """Say that another day may explain it, and what would tell."""
    if case.passes_now:
        return _unless_hidden(case, evidence)
    reach = f"{100 * ratio(case.reach):.1f} %"
    return (
        f"{_range(evidence)}, which may be the machine's: the stored runs are of "
        f"{_sessions(case)}, and from one to another it may move by {reach}; "
        f"{_what_tells(case.sessions_needed)}"
    )


def _unless_hidden(case: TimeComparison, evidence: Evidence) -> str:
    """Say that a faster day may hide a slowdown, and what would tell."""
    hidden = f"{100 * ratio(case.hidden_by_shift):.1f} %"
    return (
        f"{_range(evidence)}, not slower than {percent(case.limits.detect)} if this machine is as "
        f"fast today: the stored runs are of {_sessions(case)}, and a slowdown of "
        f"{hidden} may hide behind another; {_what_tells(case.sessions_to_pass)}"
    )


def _sessions(case: TimeComparison) -> str:
    known = len(case.sessions)
    return "one session" if known == 1 else f"{known} sessions"


def _what_tells(more: int) -> str:
    later = f", `gpuperf refresh --sessions {more}` at that code for later runs"
    return f"`gpuperf ab` compares now{later if more else ''}"


def _suite_shifted(case: TimeComparison, _evidence: Evidence) -> str:
    shift = ratio(case.suite_context.shift)
    tests = f"the tests of this run moved {signed(shift)} together"
    if case.granted < case.suite_context.shift:
        part = f"of which {_granted(case)} is taken off before code is blamed"
        return f"suite-wide shift: {tests}, {part}"
    return f"suite-wide shift: {tests}, {_consequence(case)}"


def _machine_shifted(case: TimeComparison, _evidence: Evidence) -> str:
    pace = "slower" if case.is_slowed else "faster"
    is_cut = case.is_slowed and isclose(case.granted, FAR_SLOWER)
    least = "at least " if is_cut else ""
    sentinels = f"its sentinels say that this machine is {least}{_granted(case)} {pace}"
    return f"environment: {sentinels} than with the baseline, {_consequence(case)}"


_INCONCLUSIVE: Final[Mapping[DecidedBy, Callable[[TimeComparison, Evidence], str]]] = {
    DecidedBy.MORE_RUNS: _too_early,
    DecidedBy.TOO_FEW_STORED: _too_few_stored,
    DecidedBy.SESSIONS: _unless_shifted,
    DecidedBy.DIRTY: _disturbed,
    DecidedBy.SUITE_SHIFT: _suite_shifted,
    DecidedBy.ENVIRONMENT: _machine_shifted,
}


def _consequence(case: TimeComparison) -> str:
    if case.is_slowed:
        return "which is taken off before code is blamed"
    return "behind which a slowdown could hide"


def _is_granted(case: TimeComparison) -> bool:
    """Whether so much is granted that it is written as more than nothing."""
    return case.is_slowed and ratio(case.granted) >= LEAST_SHOWN


def _granted(case: TimeComparison) -> str:
    return f"{100 * ratio(case.granted):.1f} %"


def _range(evidence: Evidence) -> str:
    return f"95 % range {signed(evidence.low)} to {signed(evidence.high)}"


def _tolerated(metric: Metric, case: TimeComparison) -> str:
    tolerance = case.limits.tolerance
    if not case.limits.floored:
        return percent(tolerance)
    return f"{figure(metric, tolerance * case.reference.typical)} (the floor)"


def _edge(metric: Metric, case: TimeComparison, *, slow: bool) -> str:
    """Name the stored run that the rank test compares with."""
    reference = case.reference
    second = "second " if reference.runs >= FULL_RUNS else ""
    word, moved = ("slowest", reference.slow) if slow else ("fastest", reference.fast)
    place = figure(metric, reference.typical * exp(moved))
    return f"the {second}{word} of {reference.runs} stored runs, {place}"


def judge_stored(  # noqa: PLR0913  keywords, each a number of its own
    metric: Metric,
    runs: Sequence[Measurement],
    entry_runs: Sequence[RunSummary],
    *,
    tolerance: float,
    detect: float,
    floor: float,
    suite_context: SuiteContext,
    sentinels: Sentinels | None = None,
) -> Verdict:
    """Judge a time by its fresh *runs*, oldest first, against the stored *entry_runs*.

    At least one of each have the metric, the fresh ones numbers that can be. ``tolerance`` is the slowdown that is never
    blamed, ``detect`` the one that never passes in silence, both ratios; ``floor``,
    in the metric's unit, is a change that is never blamed either.
    """
    kind = runs[-1].environment.hardware.kind
    stored = stored_values(metric, entry_runs, kind)
    nonsense = _impossible_stored(stored)
    if nonsense is not None:
        return Verdict(
            metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=nonsense
        )
    reference = StoredTimes.of(
        stored,
        suite_context.prior,
        Spread.assumed(kind, metric.scatter),
        shift_of(metric, entry_runs, kind, suite_context.sessions),
        is_now=is_of_one_session(entry_runs, suite_context.now),
    )
    limits = Limits.of(
        reference.typical, tolerance=tolerance, detect=detect, floor=floor
    )
    found = discounts(len(runs), sentinels, suite_context, limits.noticed)
    comparison = TimeComparison.of(
        reference, limits, suite_context, _changes(metric, runs, reference, found)
    )
    outcome, rule = _ruling(comparison)
    return _verdict(metric, comparison, outcome, rule)


def log_shift(
    metric: Metric, run: Measurement, entry_runs: Sequence[RunSummary]
) -> float | None:
    """Return how far *run* moved from the typical stored run, in log time.

    ``None`` if either has no such time, or one that cannot be.
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
    if len(stored) < 2 or _impossible_stored(stored):  # noqa: PLR2004  to differ
        return None
    calm = without_odd([log(value) for value in stored])
    nu = len(calm) - 1
    return scatter(calm) / nu, float(nu)


def log_shift_variance(
    metric: Metric, entry_runs: Sequence[RunSummary], kind: DeviceKind
) -> tuple[float, float] | None:
    """Return the variance of the stored sessions in log time and its degrees of freedom.

    ``None`` without any or of one alone, on devices of which no shift is assumed, or
    where a stored run cannot be.
    """
    if kind not in ASSUMED_SHIFT or len({run.session for run in entry_runs}) == 1:
        return None
    stored = stored_values(metric, entry_runs, kind)
    if not stored or _impossible_stored(stored):
        return None
    return shift_variance(sessions_of(metric, entry_runs, kind))


def reference_of(
    metric: Metric,
    entry_runs: Sequence[RunSummary],
    kind: DeviceKind,
    prior: Spread | None,
) -> StoredTimes | None:
    """Return what the stored runs say; ``None`` without any, or if one cannot be."""
    stored = stored_values(metric, entry_runs, kind)
    if not stored or _impossible_stored(stored):
        return None
    assumed = Spread.assumed(kind, metric.scatter)
    shift = shift_of(metric, entry_runs, kind)
    return StoredTimes.of(stored, prior, assumed, shift)


def _impossible_stored(stored: Sequence[float]) -> str | None:
    wrong = [value for value in stored if not (isfinite(value) and value > 0)]
    if not wrong:
        return None
    return f"a stored time is not a positive number: {wrong[0]}; refresh it"


def _changes(
    metric: Metric,
    runs: Sequence[Measurement],
    reference: StoredTimes,
    found: Sequence[Discount],
) -> tuple[RunChange, ...]:
    return tuple(
        _change(reading, reference, discount)
        for run, discount in zip(runs, found, strict=True)
        for reading in readings(metric, [run])
    )


def _change(reading: Reading, reference: StoredTimes, discount: Discount) -> RunChange:
    return RunChange(
        moved=log(reading.value / reference.typical),
        reading=reading,
        discount=discount,
        least=_least(reading, reference.typical, discount),
    )


def _least(reading: Reading, typical: float, discount: Discount) -> float:
    """Grant a disturbed run the larger of both discounts, not their sum."""
    if reading.least is None:
        moved = log(reading.value / typical) - discount.slower
        return -inf if reading.dirty else moved
    shown = log(reading.granted or 1.0)
    return log(reading.least / typical) - max(0.0, discount.slower - shown)


def _ruling(case: TimeComparison) -> tuple[Outcome, DecidedBy]:
    # Clean runs decide first. Bounds are for what disturbed or very few runs already
    # prove.
    if case.is_regressed:
        return Outcome.REGRESSED, DecidedBy.T_AND_RANK
    if case.is_improved:
        return Outcome.IMPROVED, DecidedBy.T_AND_RANK
    if case.passes:
        return Outcome.PASS, DecidedBy.UPPER_BOUND
    if case.is_far or case.is_bounded:
        return Outcome.REGRESSED, DecidedBy.FAR if case.is_far else DecidedBy.BOUND
    if case.may_pass or case.may_regress or case.is_proof_coming:
        return Outcome.INCONCLUSIVE, DecidedBy.MORE_RUNS
    return Outcome.INCONCLUSIVE, _doubt(case)


def _doubt(case: TimeComparison) -> DecidedBy:
    if case.reference.runs < ENOUGH_RUNS:
        return DecidedBy.TOO_FEW_STORED
    if case.is_shifted_only or case.passes_now:
        return DecidedBy.SESSIONS
    if case.is_discounted_only:
        return DecidedBy.SUITE_SHIFT if case.is_suite_wide else DecidedBy.ENVIRONMENT
    return DecidedBy.NOISE if case.can_blame else DecidedBy.DIRTY


def _verdict(
    metric: Metric, case: TimeComparison, outcome: Outcome, rule: DecidedBy
) -> Verdict:
    counted = _counted(case, outcome, rule)
    evidence = _evidence(case, counted, rule)
    chased = outcome is Outcome.PASS and case.may_improve
    return Verdict(
        metric=metric.name,
        outcome=outcome,
        because=grounds(metric, case, outcome, evidence),
        now=case.reference.typical * (1 + evidence.estimate),
        baseline=case.reference.typical,
        limit=case.reference.typical * (1 + ratio(case.limit)),
        settled=rule is not DecidedBy.MORE_RUNS and not chased,
        proving=rule is DecidedBy.MORE_RUNS and case.is_proof_coming,
        evidence=evidence,
    )


def _counted(
    case: TimeComparison, outcome: Outcome, rule: DecidedBy
) -> tuple[RunChange, ...]:
    if rule in {DecidedBy.FAR, DecidedBy.BOUND}:
        return case.seen
    return case.clean if outcome is Outcome.IMPROVED else case.used


def _p_regressed(case: TimeComparison, rule: DecidedBy) -> float | None:
    if rule is DecidedBy.BOUND:
        return case.p_bounded
    return case.p_regressed if case.is_decided and rule is not DecidedBy.FAR else None


def _evidence(
    case: TimeComparison, counted: tuple[RunChange, ...], rule: DecidedBy
) -> Evidence:
    shown = counted or case.seen
    shift = case.shift([change.moved for change in shown])
    discount = [c.discount.slower - c.discount.faster for c in shown]
    return Evidence(
        estimate=ratio(shift.estimate),
        low=ratio(shift.least(INTERVAL_RISK)),
        high=ratio(shift.most(INTERVAL_RISK)),
        tolerance=case.limits.tolerance,
        detect=case.limits.detect,
        runs=len(counted),
        stored_runs=case.reference.runs,
        smallest_detectable=ratio(case.smallest),
        discount=ratio(mean(discount)),
        p_regressed=_p_regressed(case, rule),
        p_improved=case.p_improved if case.is_decided else None,
        rule=rule,
    )
