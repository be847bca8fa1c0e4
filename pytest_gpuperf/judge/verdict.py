"""All verdicts on one test: what could not be judged, then budgets, then the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from statistics import median
from typing import Final

from ..model.baseline import Entry, RunSummary
from ..model.budget import Tolerance
from ..model.environment import DeviceKind
from ..model.measurement import Board, Measurement
from ..model.metrics import (
    METRICS,
    OCCASIONAL,
    RANKED,
    SAMPLES_PER_S,
    STEP_MS,
    SYNCS_AND_COPIES,
    TOKENS_PER_S,
    Direction,
    MeasuringPhase,
    Metric,
    MetricKind,
)
from ..model.verdict import Outcome, TestVerdict, Verdict
from .budget import (
    ResolvedBudget,
    ceiling,
    judge_exact_budget,
    judge_floor,
    judge_time_budget,
)
from .context import FAR_SLOWER, Sentinels, SuiteContext, discounts
from .exact import bytes_beneath, compared, judge_exact, judge_further, without_beneath
from .readings import (
    Limits,
    against,
    impossible,
    metric_of,
    plain,
    readings,
    stored_values,
)
from .statistics import ratio
from .stored_times import judge_stored


# The change that an author allows one metric, and its default.

DETECT_ABOVE_TOLERANCE: Final = 0.02
"""How far above the tolerance a slowdown must be never to pass in silence."""


NOTHING_TO_SEE: Final = frozenset(
    {Outcome.PASS, Outcome.NO_BASELINE, Outcome.NOT_CHECKED}
)


def waits_for_times(verdict: TestVerdict) -> bool:
    """Whether more runs are for times of timed rounds alone, and all else is as it was."""
    waiting = [v for v in verdict.verdicts if not v.settled]
    rest = [v for v in verdict.verdicts if v.settled]
    return (
        bool(waiting)
        and all(METRICS[v.metric].phase is MeasuringPhase.ROUNDS for v in waiting)
        and all(v.outcome in NOTHING_TO_SEE for v in rest)
    )


def tolerated(metric: Metric, tolerance: Tolerance) -> float:
    """Return the change of *metric*, a ratio, that is ignored."""
    return tolerance.ratios.get(metric.budget or "", metric.tolerance)


def floored(metric: Metric, tolerance: Tolerance) -> Metric:
    """Give *metric* the floor that its author names for it."""
    floor = tolerance.floors.get(metric.budget or "")
    return metric if floor is None else replace(metric, floor=ceiling(metric, floor))


def noticed(metric: Metric, tolerance: Tolerance) -> float:
    """Return the slowdown, a ratio, that never passes in silence."""
    if tolerance.detect is None:
        return tolerated(metric, tolerance) + DETECT_ABOVE_TOLERANCE
    return tolerance.detect


def step_limits(typical_ms: float, tolerance: Tolerance) -> Limits:
    """Return the changes of a step of *typical_ms* that *tolerance* allows."""
    return Limits.of(
        typical_ms,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
        floor=floored(STEP_MS, tolerance).floor,
    )


# Differences between a run and the stored ones that keep its times from blaming code.

CLOCK_RATIO: Final = 0.015
"""Difference of the SM clock from the usual one that a time would show."""

MOST_CLOCK_RATIO: Final = 0.1
"""Difference that no scatter of the stored clocks explains: the clock is held down."""

CLOCK_SIGMAS: Final = 3.0
"""Multiple of their scatter by which a clock may differ from the stored ones.

A GPU at its power limit moves its clock by some percent all the time, and its times are
stored with that scatter.
"""

SIGMA_OF_DEVIATION: Final = 1.4826
"""Standard deviation of normal values by their median absolute deviation."""

ELSEWHERE: Final = (
    "measured on another GPU of this model than the baseline, and two of them differ by "
    "several percent"
)


def guarded(
    runs: Sequence[Measurement],
    entry_runs: Sequence[RunSummary],
    sentinels: Sentinels,
) -> Sequence[Measurement]:
    """Mark *runs* as dirty if their board or clock differs from the stored ones.

    A run is dirty, too, if the *sentinels* show a machine that is much slower, or if it
    was timed in rounds of another number of steps.
    """
    stored = [run.board for run in entry_runs]
    rounds = {run.round_steps for run in entry_runs}
    slower = _slower(len(runs), sentinels)
    return [
        replace(
            run,
            dirty=(
                *run.dirty,
                *_reasons(run.board, stored),
                *_other_rounds(run.round_steps, rounds),
                *reasons,
            ),
        )
        for run, reasons in zip(runs, slower, strict=True)
    ]


def _slower(runs: int, sentinels: Sentinels) -> list[tuple[str, ...]]:
    """Return reasons for runs with far slower sentinels than the stored ones."""
    found = [d.slower for d in discounts(runs, sentinels, SuiteContext())]
    far = [100 * ratio(slower) for slower in found if slower > FAR_SLOWER]
    reason = f"its sentinels call this machine {_span(far)} % slower" if far else ""
    return [(reason,) if slower > FAR_SLOWER else () for slower in found]


def _span(values: Sequence[float]) -> str:
    """Write one reason for all runs, so that it is reported once."""
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(values), max(values)))
    return " to ".join(ends)


def _reasons(board: Board, stored: Sequence[Board]) -> Iterator[str]:
    known = {then.gpu for then in stored if then.gpu}
    if board.gpu and known and board.gpu not in known:
        yield ELSEWHERE
    clocks = [then.sm_mhz for then in stored if then.sm_mhz]
    if board.sm_mhz and clocks:
        usual = median(clocks)
        if abs(board.sm_mhz / usual - 1) > clock_ratio(clocks):
            yield f"the SM clock was {board.sm_mhz} MHz, {usual:.0f} MHz with the baseline"


def clock_ratio(clocks: Sequence[int]) -> float:
    """Return by which share a clock may differ from the stored *clocks*."""
    usual = median(clocks)
    deviation = median(abs(mhz - usual) for mhz in clocks)
    scatter = CLOCK_SIGMAS * SIGMA_OF_DEVIATION * deviation / usual
    return min(MOST_CLOCK_RATIO, max(CLOCK_RATIO, scatter))


def _other_rounds(steps: int | None, stored: AbstractSet[int | None]) -> Iterator[str]:
    """Say that a round had other numbers of steps: what they share is another part."""
    if steps is None or not stored or steps in stored:
        return
    known = sorted(number for number in stored if number is not None)
    then = " or ".join(map(str, known)) if known else "an unknown number"
    yield (
        f"a round had {steps} steps, and {then} with the baseline: their times are not "
        "comparable, refresh it"
    )


NOT_RECORDED: Final = "not recorded"
"""Used as the version of software that only one side knows of."""

ALONE: Final = SuiteContext()
"""The context of a test that is judged by itself."""


def judge(  # noqa: PLR0913, PLR0917  what the author says, what was measured, then and now
    test: str,
    runs: Sequence[Measurement],
    budget: ResolvedBudget,
    tolerance: Tolerance,
    entry: Entry | None,
    suite_context: SuiteContext = ALONE,
) -> TestVerdict:
    """Judge *test* by its *runs*, at least one, oldest first, in the suite's *suite_context*.

    A metric with a budget and a baseline gets a verdict for each, the budget's first.
    """
    last = runs[-1]
    changed = _changed(entry, last.environment.software)
    case = _TestCase(
        runs=runs,
        budget=budget,
        tolerance=tolerance,
        entry=entry,
        suite_context=suite_context,
        changed=changed,
    )
    return TestVerdict(
        test=test,
        verdicts=_telling_first(
            case,
            [
                _with_workspaces(case, v)
                for metrics in case.quantities
                for v in _judge_any(case, metrics)
            ],
        ),
        findings=compared(last.findings, entry.lines if entry else None),
        runs=len(runs),
        changed=changed,
        remarks=last.remarks,
        snapshot=last.snapshot,
        rates=dict(_rates(case)),
    )


def _with_workspaces(case: _TestCase, verdict: Verdict) -> Verdict:
    """Add how much of its bytes cuBLAS keeps, now and when they were stored."""
    metric = METRICS[verdict.metric]
    if not metric.beneath:
        return verdict
    known = [run for run in case.entry_runs if metric.beneath in run.exact]
    return replace(
        verdict,
        workspace_bytes=bytes_beneath(metric, case.runs),
        stored_workspace_bytes=bytes_beneath(metric, known) if known else None,
    )


def _telling_first(case: _TestCase, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Order what failed by how much it says: a report has the first one in its headline.

    A time is what people feel; syncs and copies are its reason, and a number that varies
    from run to run is the least certain.
    """

    def rank(verdict: Verdict) -> int:
        metric = METRICS[verdict.metric]
        if metric.kind is MetricKind.NOISY:
            return 0
        if len({reading.value for reading in readings(metric, case.runs)}) > 1:
            return 3
        return 1 if metric in SYNCS_AND_COPIES else 2

    failing = iter(sorted((v for v in verdicts if v.outcome.fails), key=rank))
    return tuple(next(failing) if v.outcome.fails else v for v in verdicts)


def _rates(case: _TestCase) -> Iterator[tuple[str, float]]:
    """Yield the median over the runs of each rate."""
    for metric in (SAMPLES_PER_S, TOKENS_PER_S):
        found = [reading.value for reading in readings(metric, case.runs)]
        if found:
            yield metric.name, median(found)


@cache
def quantities(kind: DeviceKind) -> tuple[tuple[Metric, ...], ...]:
    """Group the metrics that one budget keyword limits: of each step, and of some."""
    groups: dict[str, list[Metric]] = {}
    for name, metric in METRICS.items():
        groups.setdefault(metric.budget or name, []).append(metric_of(kind, name))
    return tuple(tuple(metrics) for metrics in groups.values())


@lru_cache
def _named_quantities(
    kind: DeviceKind, named: frozenset[str]
) -> tuple[tuple[Metric, ...], ...]:
    """Return those of which a metric or the budget is *named*: alike in most tests."""
    return tuple(
        metrics
        for metrics in quantities(kind)
        if metrics[0].budget in named or any(m.name in named for m in metrics)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestCase:
    runs: Sequence[Measurement]
    budget: ResolvedBudget
    tolerance: Tolerance
    entry: Entry | None
    suite_context: SuiteContext
    changed: Mapping[str, tuple[str, str]]

    @property
    def entry_runs(self) -> tuple[RunSummary, ...]:
        return () if self.entry is None else self.entry.runs

    @property
    def quantities(self) -> tuple[tuple[Metric, ...], ...]:
        """The quantities that were measured, stored, missed or limited."""
        named = {*self.budget.limits, *self.budget.unbound}
        for run in self.runs:
            named.update(run.times, run.exact, run.missed, run.unmeasured)
        for kept in self.entry_runs:
            named.update(kept.times, kept.exact)
        kind = self.runs[-1].environment.hardware.kind
        return _named_quantities(kind, frozenset(named))

    def limit(self, metric: Metric) -> float | None:
        limit = self.budget.limits.get(metric.budget or "")
        return None if limit is None else ceiling(metric, limit)

    def stored(self, metric: Metric) -> tuple[float, ...]:
        if not metric.gated:
            return ()
        kind = self.runs[-1].environment.hardware.kind
        return stored_values(metric, self.entry_runs, kind)

    def context_of(self, metric: Metric) -> SuiteContext:
        """Return what the suite says, without what its step times say of step times."""
        # By name: a test that sets its tolerance has a step time of its own.
        if metric.name == STEP_MS.name:
            return self.suite_context
        return replace(self.suite_context, prior=None, sessions=None, shift=0.0)

    @property
    def torch(self) -> tuple[str, str] | None:
        """The versions of torch then and now if they differ."""
        versions = self.changed.get("torch")
        # A version that one side lacks is no proof that it changed.
        return None if versions and NOT_RECORDED in versions else versions

    @property
    def measured_nothing(self) -> bool:
        return not any(run.times or run.exact for run in self.runs)

    def why_missed(self, metric: Metric) -> str | None:
        reasons = (run.missed.get(metric.name) for run in reversed(self.runs))
        return next((reason for reason in reasons if reason), None)

    def why_unmeasured(self, metric: Metric) -> str | None:
        reasons = (run.unmeasured.get(metric.name) for run in reversed(self.runs))
        return next((reason for reason in reasons if reason), None)


def _judge_any(case: _TestCase, metrics: Sequence[Metric]) -> Iterator[Verdict]:
    measured = [metric for metric in metrics if readings(metric, case.runs)]
    # Said even if the metric was measured: the author must learn that the limit does
    # not apply on this hardware.
    unbound = case.budget.unbound.get(metrics[0].budget or "")
    if unbound is not None:
        metric = next(iter(measured), metrics[0])
        yield _not_checked(metric, unbound)
    elif not measured:
        yield from _judge_unmeasured(case, metrics)
    for metric in measured:
        yield from _judge_measured(case, metric)
    for name, metric in OCCASIONAL.items():
        if metric in metrics and unbound is None:
            yield from judge_further(
                METRICS[name],
                metric,
                case.runs,
                case.entry_runs,
                tolerance=tolerated(metric, case.tolerance),
                torch=case.torch,
            )
    if measured and case.limit(measured[0]) is not None:
        # What each step does is within the limit; what only some do may not be.
        for metric in metrics:
            if metric in OCCASIONAL.values() and (why := case.why_missed(metric)):
                yield _unchecked_budget(case, metric, why)


def _judge_unmeasured(case: _TestCase, metrics: Sequence[Metric]) -> Iterator[Verdict]:
    """Say why there is no number, if a budget or a baseline asks for one."""
    tests = (case.stored, case.why_missed, case.why_unmeasured)
    known = (m for is_known in tests for m in metrics if is_known(m))
    metric = next(known, metrics[0])
    missed, reason = case.why_missed(metric), case.why_unmeasured(metric)
    limit = case.limit(metric)
    is_asked = limit is not None or bool(case.stored(metric))
    if missed and limit is not None:
        yield _unchecked_budget(case, metric, missed)
    elif missed and (is_asked or metric.gated):
        yield Verdict(metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=missed)
    elif is_asked or (_is_expected(metric) and reason and case.measured_nothing):
        kind = case.runs[-1].environment.hardware.kind.value
        silent = f"the {kind} device does not measure {metric.budget or metric.name}"
        yield _not_checked(metric, reason or silent)


def _unchecked_budget(case: _TestCase, metric: Metric, why: str) -> Verdict:
    """Report a budget as unchecked although this device could have measured it."""
    keyword = metric.budget or ""
    return Verdict(
        metric=metric.name,
        outcome=Outcome.INCONCLUSIVE,
        because=f"{keyword}={plain(case.budget.limits[keyword])} was not checked: {why}",
        unchecked_budget=True,
    )


def _is_expected(metric: Metric) -> bool:
    """Whether any test has it; metrics of ranks exist only for several ranks."""
    return metric.gated and metric not in RANKED


def _judge_measured(case: _TestCase, metric: Metric) -> Iterator[Verdict]:
    limit, stored = case.limit(metric), case.stored(metric)
    if limit is None and not metric.gated:
        return
    if limit is not None and metric.direction is Direction.HIGHER:
        yield judge_floor(metric, case.runs, limit)
        return
    # Before any rule: they take logarithms, which a time of 0 or NaN does not have.
    nonsense = impossible(metric, case.runs)
    if nonsense is not None and limit is not None:
        yield _unchecked_budget(case, metric, nonsense)
        return
    if nonsense is not None:
        yield Verdict(
            metric=metric.name, outcome=Outcome.INCONCLUSIVE, because=nonsense
        )
        return
    budgeted = None if limit is None else _judge_budget(case, metric, limit)
    based = _judge_baseline(case, metric, stored) if stored else None
    if budgeted:
        yield _with_number_of(based, budgeted, metric)
    if based:
        yield based
    elif limit is None and not _is_nothing(case, metric):
        yield _no_baseline(case, metric)


def _is_nothing(case: _TestCase, metric: Metric) -> bool:
    """Whether a baseline from before the metric lacks it, and nothing is left unblamed."""
    known = bool(case.entry_runs) and metric.can_be_zero and metric.floor > 0
    return known and all(
        reading.value <= metric.floor for reading in readings(metric, case.runs)
    )


def _with_number_of(
    based: Verdict | None, budgeted: Verdict, metric: Metric
) -> Verdict:
    """Show the same time with budget and baseline, which average it differently.

    The budget's own number is kept if the other is on the other side of the ceiling.
    """
    own, limit, now = budgeted.now, budgeted.limit, based.now if based else None
    if metric.kind is MetricKind.EXACT or own is None or limit is None or now is None:
        return budgeted
    if (own > limit) is not (now > limit):
        return budgeted
    rest = budgeted.because.removeprefix(against(metric, own, limit))
    if rest == budgeted.because:
        return budgeted
    return replace(budgeted, now=now, because=f"{against(metric, now, limit)}{rest}")


def _judge_budget(case: _TestCase, metric: Metric, limit: float) -> Verdict:
    if metric.kind is MetricKind.EXACT:
        return judge_exact_budget(metric, case.runs, limit)
    return judge_time_budget(
        metric,
        case.runs,
        limit,
        entry_runs=case.entry_runs,
        prior=case.context_of(metric).prior,
    )


def _judge_baseline(
    case: _TestCase, metric: Metric, stored: Sequence[float]
) -> Verdict:
    tolerance = tolerated(metric, case.tolerance)
    metric = floored(metric, case.tolerance)
    if metric.kind is MetricKind.EXACT:
        return _judge_own(case, metric, stored, tolerance)
    sentinels = Sentinels.of(case.runs, case.entry_runs)
    return judge_stored(
        metric,
        guarded(case.runs, case.entry_runs, sentinels),
        case.entry_runs,
        tolerance=tolerance,
        detect=noticed(metric, case.tolerance),
        floor=metric.floor,
        suite_context=case.context_of(metric),
        sentinels=sentinels,
    )


def _judge_own(
    case: _TestCase, metric: Metric, stored: Sequence[float], tolerance: float
) -> Verdict:
    """Judge without what cuBLAS keeps now as then, so that the reason names the step's own."""
    judge_it = partial(judge_exact, metric, tolerance=tolerance, torch=case.torch)
    beneath = bytes_beneath(metric, case.runs)
    if not beneath or beneath != bytes_beneath(metric, case.entry_runs):
        return judge_it(case.runs, stored)
    own = judge_it(
        without_beneath(metric, case.runs), [value - beneath for value in stored]
    )
    return own.moved_by(beneath)


def _not_checked(metric: Metric, because: str) -> Verdict:
    return Verdict(metric=metric.name, outcome=Outcome.NOT_CHECKED, because=because)


def _no_baseline(case: _TestCase, metric: Metric) -> Verdict:
    elsewhere = (metric.budget or "") in case.budget.unbound
    lacking = "not in its baseline" if case.entry_runs else "no baseline"
    because = f"{lacking} and no budget" + (" that binds here" if elsewhere else "")
    seen = [reading.value for reading in readings(metric, case.runs)]
    return Verdict(
        metric=metric.name,
        outcome=Outcome.NO_BASELINE,
        because=because,
        now=median(seen) if metric.kind is MetricKind.NOISY else max(seen),
        not_stored=bool(case.entry_runs),
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
