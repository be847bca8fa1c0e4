"""Times against the stored baseline: the rank rule.

If nothing changed, fresh and stored runs are exchangeable, and all of 5 fresh runs
stand above the second largest of R stored ones with probability 6 / C(R + 5, 5):
0.5 % for 8 stored runs, whatever the distribution. The tolerance comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median

from ..model.baseline import ENOUGH_RUNS
from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .figure import change
from .figure import figure
from .figure import percent
from .reading import MAX_RUNS
from .reading import Reading
from .reading import dirt
from .reading import readings
from .reading import remaining_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the stored runs of one time say, in its unit.

    All fresh runs above ``slow`` are a regression, all below ``fast`` an improvement;
    a median at or below ``quick`` passes.
    """

    runs: int
    typical: float
    second_slowest: float
    second_fastest: float
    slow: float
    fast: float
    quick: float
    smallest_slowdown: float

    @classmethod
    def of(cls, stored: Sequence[float], tolerance: float, detect: float) -> Reference:
        """Derive the limits from *stored*, ascending, at least one.

        ``quick`` is capped by *detect*, so that on a scattered baseline a slowdown
        above it does not pass in silence.
        """
        typical = median(stored)
        second_fastest, second_slowest = stored[:2][-1], stored[-2:][0]
        slow = second_slowest * (1 + tolerance)
        return cls(
            runs=len(stored),
            typical=typical,
            second_slowest=second_slowest,
            second_fastest=second_fastest,
            slow=slow,
            fast=second_fastest / (1 + tolerance),
            quick=min(slow, typical * (1 + detect)),
            smallest_slowdown=slow / stored[0] - 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the fresh runs say against a reference.

    ``used`` leaves out disturbed runs that are slow: they say nothing about the code.
    """

    reference: Reference
    seen: Sequence[Reading]
    used: Sequence[float]

    @classmethod
    def of(cls, reference: Reference, seen: Sequence[Reading]) -> Evidence:
        used = [r.value for r in seen if not r.dirty or r.value <= reference.quick]
        return cls(reference=reference, seen=seen, used=used)

    @property
    def now(self) -> float:
        return median(self.used or [reading.value for reading in self.seen])

    @property
    def clean(self) -> int:
        return sum(not reading.dirty for reading in self.seen)

    @property
    def remaining(self) -> int:
        return remaining_runs(self.seen)

    @property
    def can_blame(self) -> bool:
        """Whether there are, or may yet be, enough runs to leave PASS."""
        enough = self.clean + self.remaining >= MAX_RUNS
        return enough and self.reference.runs >= ENOUGH_RUNS

    @property
    def all_slow(self) -> bool:
        return min(self.used, default=inf) > self.reference.slow

    @property
    def all_fast(self) -> bool:
        return max(self.used, default=inf) < self.reference.fast

    @property
    def passes(self) -> bool:
        return bool(self.used) and median(self.used) <= self.reference.quick

    @property
    def can_pass(self) -> bool:
        """Whether the runs that remain can bring the median down to ``quick``."""
        low = sum(value <= self.reference.quick for value in self.used)
        return self.remaining > 0 and low + self.remaining >= len(self.used) - low


def judge_noisy(
    metric: Metric,
    runs: Sequence[Measurement],
    stored: Sequence[float],
    *,
    tolerance: float,
    detect: float,
) -> Verdict:
    """Judge a time against *stored*, the ascending values of the stored runs.

    At least one of *runs* and one stored run have the metric. ``tolerance`` is the
    slowdown that is never blamed, ``detect`` the one that never passes in silence,
    both ratios.
    """
    reference = Reference.of(stored, tolerance, detect)
    evidence = Evidence.of(reference, readings(metric, runs))
    verdict = partial(
        Verdict,
        metric=metric.name,
        now=evidence.now,
        baseline=reference.typical,
        limit=reference.slow,
    )
    decided = evidence.can_blame and evidence.clean >= MAX_RUNS
    if decided and evidence.all_slow:
        because = _why_regressed(metric, evidence, tolerance)
        return verdict(outcome=Outcome.REGRESSED, because=because)
    if decided and evidence.all_fast:
        because = _why_improved(metric, evidence, tolerance)
        return verdict(outcome=Outcome.IMPROVED, because=because)
    if evidence.passes:
        because = _why_passed(metric, evidence)
        settled = not (evidence.can_blame and evidence.all_fast)
        return verdict(outcome=Outcome.PASS, because=because, settled=settled)
    settled = not (evidence.can_pass or (evidence.can_blame and evidence.all_slow))
    why = _doubt(metric, evidence) if settled else _still_open(evidence)
    because = (
        f"{why}; the smallest slowdown this machine could have seen is "
        f"{100 * reference.smallest_slowdown:.1f} %"
    )
    return verdict(outcome=Outcome.INCONCLUSIVE, because=because, settled=settled)


def _why_regressed(metric: Metric, evidence: Evidence, tolerance: float) -> str:
    reference = evidence.reference
    return (
        f"each of {len(evidence.used)} runs is more than {percent(tolerance)} slower "
        f"than the second slowest of {reference.runs} stored runs, "
        f"{figure(metric, reference.second_slowest)}"
    )


def _why_improved(metric: Metric, evidence: Evidence, tolerance: float) -> str:
    reference = evidence.reference
    return (
        f"each of {len(evidence.used)} runs is more than {percent(tolerance)} faster "
        f"than the second fastest of {reference.runs} stored runs, "
        f"{figure(metric, reference.second_fastest)}"
    )


def _why_passed(metric: Metric, evidence: Evidence) -> str:
    now, typical = evidence.now, evidence.reference.typical
    return (
        f"{figure(metric, now)}, baseline {figure(metric, typical)}, "
        f"{change(now, typical)}"
    )


def _still_open(evidence: Evidence) -> str:
    return f"undecided after {len(evidence.seen)} of at most {MAX_RUNS} runs"


def _doubt(metric: Metric, evidence: Evidence) -> str:
    reference = evidence.reference
    if reference.runs < ENOUGH_RUNS:
        return (
            f"too few stored runs ({reference.runs}, {ENOUGH_RUNS} are needed to blame)"
        )
    if evidence.all_slow:
        return f"dirty: {dirt(r for r in evidence.seen if r.value > reference.quick)}"
    if max(evidence.used) > reference.slow:
        return f"noise: runs lie on both sides of {figure(metric, reference.slow)}"
    return "noise: the runs are slow, but inside the spread of the stored runs"
