"""Changes that the tests of one run share.

Holm's method bounds the risk over all tests (Holm, Scandinavian Journal of Statistics
6, 1979): a run in which nothing changed fails with a probability of at most alpha. A
change that most tests share is reported once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan, log1p
from statistics import median
from typing import Final

from ..model.verdict import (
    DecidedBy,
    Evidence,
    Outcome,
    ShiftCause,
    SuiteVerdict,
    TestVerdict,
    Verdict,
)
from .context import SENTINEL_NOISE
from .statistics import ALPHA, FEWEST_TESTS, ratio
from .wording import signed


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
        if p > _level(len(known), len(rejected), alpha):
            break
        rejected.add(name)
    return frozenset(rejected)


def _level(tests: int, rejected: int, alpha: float) -> float:
    """Return the largest p at which Holm's method rejects the next hypothesis."""
    return alpha / max(1, tests - rejected)


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
    that witness the machine, in log time. The suite moved if at least 8 tests were
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
    witnessed = sentinels if shift > 0 else -sentinels
    visible = max(SENTINEL_NOISE, VISIBLE_SHARE * abs(shift))
    return ShiftCause.MACHINE if witnessed >= visible else ShiftCause.CODE


def _because(moved: int, tests: int, shift: float, cause: ShiftCause) -> str:
    who = f"all {tests}" if moved == tests else f"{moved} of {tests}"
    return f"{who} tests {signed(ratio(shift))}, {_WITNESS[cause]}"


_WITNESS: Final = {
    ShiftCause.MACHINE: "sentinels too: the machine, not the code",
    ShiftCause.CODE: "sentinels still: a common cause in code or a dependency",
    ShiftCause.UNKNOWN: "no sentinel was measured: the machine, or a common cause in code "
    "or a dependency",
}
