"""Judge calls: by their author's budgets and tolerances, by their baselines, together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan, log1p
from statistics import median
from typing import Final

from ..model.baseline import Entry
from ..model.budget import Budget, Tolerance
from ..model.environment import DeviceKind, Hardware
from ..model.measurement import Measurement, shared_steps
from ..model.metrics import (
    METRICS,
    OCCASIONAL,
    SPEEDUP,
    STEP_MS,
    MetricKind,
    limited_by,
)
from ..model.run import StepCall
from ..model.verdict import (
    DecidedBy,
    Evidence,
    Outcome,
    ShiftCause,
    SuiteVerdict,
    TestVerdict,
    Verdict,
)
from .budget import resolve
from .context import SENTINEL_NOISE, Sentinels, SuiteContext, burst, sentinel_shifts
from .readings import StoredTimes, readings, signed
from .statistics import ALPHA, FEWEST_TESTS, Spread, fit_prior, pooled_shift, ratio
from .stored_times import log_shift, log_shift_variance, log_variance, reference_of
from .verdict import ALONE, judge


WHOLE_PROJECT: Final = Tolerance()
"""The tolerance of a project that names none."""


def judge_calls(
    calls: Sequence[StepCall],
    entry: Entry | None,
    suite_context: SuiteContext = ALONE,
    project: Tolerance = WHOLE_PROJECT,
) -> TestVerdict:
    """Judge one call of a test by what each run measured of it, oldest first.

    The *project*'s tolerance applies if no mark names one.
    """
    last = calls[-1]
    runs = [call.measurement for call in calls]
    budget = resolve(last.budgets, last.measurement.environment.hardware)
    budget = budget.without(str(SPEEDUP.budget))  # of a comparison, not of a step
    tolerance = merged((*last.tolerances, project))
    return judge(last.measurement.test, runs, budget, tolerance, entry, suite_context)


def varies_by_run(calls: Sequence[StepCall]) -> bool:
    """Whether a count or size that is judged differs in these runs, or could in others."""
    runs = [call.measurement for call in calls]
    return (
        any(run.unseeded for run in runs)
        or any(
            len({reading.value for reading in readings(metric, runs)}) > 1
            for metric in METRICS.values()
            if metric.gated and metric.kind is MetricKind.EXACT
        )
        or _looks_differ(runs)
    )


def _looks_differ(runs: Sequence[Measurement]) -> bool:
    """Whether what further steps did differs in these runs, as far as all looked."""
    looks = [run.further for run in runs if run.further]
    steps = shared_steps(looks) if looks else range(0)
    return any(
        len({look.beyond(name, 0, steps) for look in looks}) > 1 for name in OCCASIONAL
    )


def suite_context_of(
    runs: Mapping[str, Sequence[Measurement]],
    entries: Mapping[str, Entry],
) -> SuiteContext:
    """Return what the *runs* of all calls, oldest first, and all *entries* say about each.

    The scatter comes from every stored test, also from those that were not selected.
    """
    first = {key: known[0] for key, known in runs.items()}
    kinds = {run.environment.hardware.kind for run in first.values()}
    if not kinds:
        return ALONE
    kind, shifts = kinds.pop(), _shifts(first, entries)
    # A disturbed run moved for a reason that its neighbours need not share.
    clean = [shift for key, shift in shifts.items() if not first[key].dirty]
    prior = prior_of(entries.values(), kind)
    return SuiteContext(
        prior=prior,
        burst=burst((known for key, known in runs.items() if key in entries), prior),
        sessions=sessions_prior_of(entries.values(), kind),
        shift=suite_shift(clean),
        tests=max(1, len(shifts)),
    )


def prior_of(entries: Iterable[Entry], kind: DeviceKind) -> Spread | None:
    """Return what the stored runs of all tests say about the scatter of one."""
    known = (log_variance(STEP_MS, entry.runs, kind) for entry in entries)
    found = [variance for variance in known if variance is not None]
    return fit_prior([variance for variance, _ in found], [nu for _, nu in found])


def references_of(
    entries: Mapping[str, Entry], kind: DeviceKind
) -> dict[str, StoredTimes]:
    """Return what the stored step times of each entry say, if it has any."""
    prior = prior_of(entries.values(), kind)
    found = {
        key: reference_of(STEP_MS, entry.runs, kind, prior)
        for key, entry in entries.items()
    }
    return {key: known for key, known in found.items() if known is not None}


def sessions_prior_of(entries: Iterable[Entry], kind: DeviceKind) -> Spread | None:
    """Return what all tests say about how one shifts from one session to another."""
    known = (log_shift_variance(STEP_MS, entry.runs, kind) for entry in entries)
    return pooled_shift([variance for variance in known if variance is not None])


def suite_of(
    first: Mapping[str, Measurement], entries: Mapping[str, Entry]
) -> SuiteVerdict | None:
    """Return what all tests did together; ``None`` if they did not move."""
    shifts = _shifts(first, entries)
    sentinels = [Sentinels.of([first[key]], entries[key].runs) for key in shifts]
    return suite_verdict(
        list(shifts.values()),
        [
            shift
            for each in sentinels
            if each.stored and each.fresh != (None,)
            for shift in sentinel_shifts(1, each)
        ],
        tolerance=STEP_MS.tolerance,
    )


def _shifts(
    first: Mapping[str, Measurement], entries: Mapping[str, Entry]
) -> dict[str, float]:
    found = {
        key: log_shift(STEP_MS, run, entries[key].runs)
        for key, run in first.items()
        if key in entries
    }
    return {key: shift for key, shift in found.items() if shift is not None}


def counted(entries: Mapping[str, Entry]) -> dict[str, tuple[str, ...]]:
    """Name by call the counts and sizes that its stored runs have."""
    return {
        key: tuple(dict.fromkeys(name for run in entry.runs for name in run.exact))
        for key, entry in entries.items()
    }


def boards_of(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return by call the GPU of its newest stored run, if that names one."""
    newest = {key: entry.runs[-1].board.gpu for key, entry in entries.items()}
    return {key: gpu for key, gpu in newest.items() if gpu}


def stored_round_steps(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Return by call the steps per round of its newest stored run, if that says it."""
    newest = {key: entry.runs[-1].round_steps for key, entry in entries.items()}
    return {key: steps for key, steps in newest.items() if steps is not None}


def asked_of(
    budgets: Sequence[Budget], hardware: Hardware, stored: Iterable[str]
) -> frozenset[str]:
    """Name the metrics that *budgets* limit on *hardware*, and those that are *stored*."""
    limited = resolve(budgets, hardware).limits
    named = {metric.name for keyword in limited for metric in limited_by(keyword)}
    return frozenset({*named, *stored})


def settle_together(
    verdicts: Mapping[str, Mapping[str, TestVerdict]],
) -> dict[str, dict[str, TestVerdict]]:
    """Apply Holm's method to the calls of all tests, by test and by call."""
    together = iter(
        settle_suite([v for calls in verdicts.values() for v in calls.values()])
    )
    return {
        test: {key: next(together) for key in calls} for test, calls in verdicts.items()
    }


def merged(layers: Sequence[Tolerance]) -> Tolerance:
    """Return one tolerance; the first layer that names a metric decides it."""
    ratios: dict[str, float] = {}
    floors: dict[str, float] = {}
    for layer in reversed(layers):
        # A layer of higher precedence that names a ratio replaces the whole tolerance
        # of that metric, its floor included.
        floors = {n: f for n, f in floors.items() if n not in layer.ratios}
        floors.update(layer.floors)
        ratios.update(layer.ratios)
    detects = [layer.detect for layer in layers if layer.detect is not None]
    return Tolerance(
        ratios=ratios, floors=floors, detect=detects[0] if detects else None
    )


def accepted(verdict: TestVerdict, because: str) -> TestVerdict:
    """Turn what had no baseline into a pass: a refresh has just taken it over."""
    return replace(
        verdict,
        verdicts=tuple(
            replace(v, outcome=Outcome.PASS, because=because)
            if v.outcome is Outcome.NO_BASELINE
            else v
            for v in verdict.verdicts
        ),
    )


# Changes that the tests of one run share.
#
# Holm's method bounds the risk over all tests (Holm, Scandinavian Journal of Statistics
# 6, 1979): a run in which nothing changed fails with a probability of at most alpha. A
# change that most tests share is reported once.


MOST_SHARE: Final = 0.75
"""Share of the tests that must move for the suite to have moved."""

VISIBLE_SHARE: Final = 0.3
"""Share of what slows a machine that a sentinel sees at least."""


def holm(p_values: Mapping[str, float], alpha: float) -> frozenset[str]:
    """Return the names of the hypotheses rejected at the family-wise risk *alpha*.

    A p-value that is no number counts as 1.
    """
    known = {name: 1.0 if isnan(p) else p for name, p in p_values.items()}
    rejected: set[str] = set()
    # Holm's step-down: the smallest p first, and the first that is not rejected ends
    # it.
    for name, p in sorted(known.items(), key=lambda item: (item[1], item[0])):
        if p > alpha / (len(known) - len(rejected)):
            break
        rejected.add(name)
    return frozenset(rejected)


def suite_shift(first_run_shifts: Sequence[float]) -> float:
    """Return the median of the tests' first changes, in log time; 0 below 8 tests."""
    if len(first_run_shifts) < FEWEST_TESTS:
        return 0.0
    return median(first_run_shifts)


def settle_suite(verdicts: Sequence[TestVerdict]) -> tuple[TestVerdict, ...]:
    """Keep REGRESSED and IMPROVED only where Holm's method over all tests does.

    Blame that it drops is INCONCLUSIVE; an improvement that it drops still passed.
    Every time judged against a baseline counts as a test, also one that passed at
    once. Verdicts without evidence, and those on budgets, stay as they are.
    """
    levels = {
        outcome: _rejected(verdicts, outcome)
        for outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    }
    return tuple(
        replace(
            test,
            verdicts=tuple(
                _settled(verdict, _name(index, place), levels)
                for place, verdict in enumerate(test.verdicts)
            ),
        )
        for index, test in enumerate(verdicts)
    )


Rejected = tuple[frozenset[str], int]
"""What Holm's method rejects, and among how many."""


def _rejected(verdicts: Sequence[TestVerdict], outcome: Outcome) -> Rejected:
    family = {
        _name(index, place): _p(verdict.evidence, outcome)
        for index, test in enumerate(verdicts)
        for place, verdict in enumerate(test.verdicts)
        # Passed tests belong to the family as well: leaving them out would select by
        # the outcome.
        if verdict.evidence is not None and verdict.baseline is not None
    }
    return holm(family, ALPHA), len(family)


def _p(evidence: Evidence, outcome: Outcome) -> float:
    slower = outcome is Outcome.REGRESSED
    if slower and evidence.rule is DecidedBy.FAR:
        return 0.0  # so far beyond all stored runs that no number of tests explains it
    p = evidence.p_regressed if slower else evidence.p_improved
    return 1.0 if p is None else p


def _name(index: int, place: int) -> str:
    return f"{index}.{place}"


def _settled(
    verdict: Verdict, name: str, levels: Mapping[Outcome, Rejected]
) -> Verdict:
    if verdict.evidence is None or verdict.outcome not in levels:
        return verdict
    rejected, tests = levels[verdict.outcome]
    if name in rejected:
        return verdict
    evidence = replace(verdict.evidence, rule=DecidedBy.HOLM)
    blamed = verdict.outcome is Outcome.REGRESSED
    because = _not_among(verdict.outcome, evidence, tests)
    return replace(
        verdict,
        outcome=Outcome.INCONCLUSIVE if blamed else Outcome.PASS,
        because=because,
        evidence=evidence,
    )


def _not_among(outcome: Outcome, evidence: Evidence, tests: int) -> str:
    pace = "slower" if outcome is Outcome.REGRESSED else "faster"
    return (
        f"{signed(evidence.estimate)} would be {pace} for one test alone; among "
        f"{tests} tests that are judged together chance explains it"
    )


def suite_verdict(
    shifts: Sequence[float],
    sentinel_shifts: Sequence[float] = (),
    *,
    tolerance: float = 0.01,
) -> SuiteVerdict | None:
    """Return how the suite moved as a whole; ``None`` if it did not.

    *shifts* are the tests' first changes and *sentinel_shifts* those of the kernels
    that show the machine's speed, in log time. The suite moved if at least 8 tests were
    measured and three in four of them moved by more than *tolerance*, a ratio, in one
    direction. The machine is to blame if the sentinels moved the same way by at least
    30 % of it.
    """
    shift = suite_shift(shifts)
    beyond = [s for s in shifts if s * shift > 0 and abs(s) > log1p(tolerance)]
    if not beyond or len(shifts) < FEWEST_TESTS:
        return None
    if len(beyond) < MOST_SHARE * len(shifts):
        return None
    sentinels = median(sentinel_shifts) if sentinel_shifts else None
    cause = _cause(shift, sentinels)
    return SuiteVerdict(
        tests=len(shifts),
        moved=len(beyond),
        shift=ratio(shift),
        sentinels=None if sentinels is None else ratio(sentinels),
        cause=cause,
        because=_because(len(beyond), len(shifts), shift, cause),
    )


def _cause(shift: float, sentinels: float | None) -> ShiftCause:
    if sentinels is None:
        return ShiftCause.UNKNOWN
    same_way = sentinels if shift > 0 else -sentinels
    visible = max(SENTINEL_NOISE, VISIBLE_SHARE * abs(shift))
    return ShiftCause.MACHINE if same_way >= visible else ShiftCause.CODE


def _because(moved: int, tests: int, shift: float, cause: ShiftCause) -> str:
    who = f"all {tests}" if moved == tests else f"{moved} of {tests}"
    return f"{who} tests {signed(ratio(shift))}, {_CAUSES[cause]}"


_CAUSES: Final = {
    ShiftCause.MACHINE: "sentinels too: the machine, not the code",
    ShiftCause.CODE: "sentinels still: a common cause in code or a dependency",
    ShiftCause.UNKNOWN: "no sentinel was measured: the machine, or a common cause in code "
    "or a dependency",
}
