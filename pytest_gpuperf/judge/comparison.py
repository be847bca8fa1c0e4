"""The fresh runs of one time against its stored ones, in numbers.

Times are compared by their logarithms: a slowdown of d adds ln(1 + d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, sqrt
from statistics import NormalDist, median
from typing import Final

from ..model.baseline import ENOUGH_RUNS, FULL_RUNS, SESSION_RUNS
from ..model.verdict import DetectableChange, SuiteAcuity
from .context import Discount, SuiteContext
from .readings import MAX_RUNS, Limits, Reading, StoredTimes, remaining_runs
from .statistics import (
    ALPHA,
    PASS_RISK,
    POWER_QUANTILE,
    SHARED,
    SHIFT_RISK,
    SessionShift,
    Shift,
    Spread,
    mean,
    ratio,
)


ROUND_TOLERANCES: Final = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Tolerances that are advised, as ratios."""

MOST_TESTS: Final = 0.95
"""Share of the tests that a tolerance should let be decided."""

_NORMAL: Final = NormalDist()


def smallest_blamed(
    spread: Spread, risk: float, *, stored: int, fresh: int, burst: float = 0.0
) -> float:
    """Return the slowdown, in log time, that is blamed with a probability of 90 %.

    It is counted from the tolerance on, for *fresh* runs against *stored* ones. Both
    tests must prove it: the t test at *risk*, and the rank test.
    """
    error = spread.error(fresh, stored, burst)
    proof = (spread.quantile(risk) + POWER_QUANTILE) * error
    return max(proof, spread.sigma * _ranked(stored, fresh))


def passes_calm(spread: Spread, limits: Limits, *, stored: int, fresh: int) -> bool:
    """Whether so many *fresh* runs of unchanged code pass with a probability of 90 %."""
    bound = (spread.quantile(PASS_RISK) + POWER_QUANTILE) * spread.error(fresh, stored)
    return bound < limits.noticed


def completed(reference: StoredTimes) -> tuple[Spread, int]:
    """Return the spread and the number of stored runs, as if enough to blame."""
    known = reference.spread
    spread = Spread(sigma=known.sigma, nu=max(known.nu, ENOUGH_RUNS - 1))
    return spread, max(reference.runs, ENOUGH_RUNS)


def acuity(
    test: str,
    reference: StoredTimes,
    limits: Limits,
    suite_context: SuiteContext,
    fresh: int = MAX_RUNS,
) -> DetectableChange:
    """Say what so many clean *fresh* runs of *test* show among the tests of *suite_context*."""
    spread, stored = completed(reference)
    smallest = smallest_blamed(spread, suite_context.risk, stored=stored, fresh=fresh)
    shift = reference.shift.smallest(spread, fresh) if reference.shift else 0.0
    return DetectableChange(
        test=test,
        scatter=ratio(spread.sigma),
        smallest=ratio(max(limits.ignored + smallest, shift)),
        tolerance=limits.tolerance,
        decidable=passes_calm(spread, limits, stored=stored, fresh=fresh),
    )


def suite_acuity(
    now: Sequence[DetectableChange], wider: Mapping[float, Sequence[DetectableChange]]
) -> SuiteAcuity:
    """Sum up tests, at least one, and advise one of the *wider* tolerances if needed.

    It is the first that lets 95 % of the tests be decided; if none does, the first
    of those that let most.
    """
    best = max(map(_decidable, wider.values()), default=0)
    wanted = min(MOST_TESTS * len(now), best)
    enough = [t for t, tests in sorted(wider.items()) if _decidable(tests) >= wanted]
    is_needed = _decidable(now) < wanted
    advised = enough[0] if is_needed else None
    return SuiteAcuity(
        tests=tuple(sorted(now, key=lambda one: (-one.scatter, one.test))),
        scatter=median(one.scatter for one in now),
        smallest=median(one.smallest for one in now),
        decidable=_decidable(now),
        advised=advised,
        decidable_then=0 if advised is None else _decidable(wider[advised]),
    )


def _decidable(tests: Sequence[DetectableChange]) -> int:
    return sum(one.decidable for one in tests)


@lru_cache(maxsize=1024)
def _ranked(stored: int, fresh: int) -> float:
    """Return what the rank test needs with a probability of 90 %, in standard deviations.

    The slowest but one of *stored* runs (of fewer than 8 the slowest), the fastest of
    *fresh* ones and what these share are taken as normal, with the means of order
    statistics by Blom and the first term of their variances (David and Nagaraja, Order
    Statistics, 3rd edition, section 4.6): within 3 % of what simulations give.
    """
    edge = stored - 1 if stored >= FULL_RUNS else stored
    high, high_variance = _ordered(edge, stored)
    low, low_variance = _ordered(1, fresh)
    variance = high_variance + SHARED + (1 - SHARED) * low_variance
    return high - sqrt(1 - SHARED) * low + POWER_QUANTILE * sqrt(variance)


def _ordered(place: int, runs: int) -> tuple[float, float]:
    """Return mean and variance of a standard normal order statistic."""
    share = place / (runs + 1)
    height = _NORMAL.pdf(_NORMAL.inv_cdf(share))
    mean = _NORMAL.inv_cdf((place - 0.375) / (runs + 0.25))
    return mean, share * (1 - share) / ((runs + 2) * height**2)


MOST_ASKED: Final = 10
"""Sessions beyond which nobody is asked to record more: other code tells sooner."""


FAR: Final = 4.0
"""Times the slowest stored run above which two runs are proof enough.

No noise that was recorded does that to each of two runs, whatever the stored runs say of
its scatter; so it applies to one or two stored runs as well.
"""

FAR_RUNS: Final = 2
"""Runs that prove a slowdown so large: one alone may have been an accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One fresh run against the typical stored one, in log time.

    ``least`` is the slowdown that is proven of it, disturbed or not; of nothing if a
    disturbance may have added any amount.
    """

    moved: float
    reading: Reading
    discount: Discount
    least: float = -inf

    @property
    def proven(self) -> float:
        """The slowdown that is left when the machine got its discount."""
        return self.moved - self.discount.slower

    @property
    def feared(self) -> float:
        """The slowdown that a machine which looks faster may hide."""
        return self.moved + self.discount.faster + self.discount.unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeComparison:
    """All that the rules ask about.

    ``used`` leaves out disturbed runs that are slow; ``MAX_RUNS`` clean ones are enough
    to blame, for which ``remaining`` more may follow.
    """

    reference: StoredTimes
    limits: Limits
    suite_context: SuiteContext
    seen: tuple[RunChange, ...]
    used: tuple[RunChange, ...]
    clean: tuple[RunChange, ...]
    remaining: int

    @classmethod
    def of(
        cls,
        reference: StoredTimes,
        limits: Limits,
        suite_context: SuiteContext,
        seen: tuple[RunChange, ...],
    ) -> TimeComparison:
        """Use every clean run, and of the disturbed ones those that would pass alone."""
        quick = limits.noticed - reference.margin(1)
        # A disturbance only adds time: a disturbed run that is fast enough is still
        # evidence for a pass, a slow one is evidence for nothing.
        used = tuple(c for c in seen if not c.reading.dirty or c.feared < quick)
        clean = tuple(c for c in seen if not c.reading.dirty)
        return cls(
            reference=reference,
            limits=limits,
            suite_context=suite_context,
            seen=seen,
            used=used,
            clean=clean,
            remaining=remaining_runs([change.reading for change in seen]),
        )

    @property
    def shown(self) -> tuple[RunChange, ...]:
        """The runs that the reported numbers are of."""
        return self.used or self.seen

    @property
    def can_blame(self) -> bool:
        """Whether there are, or may yet be, enough runs to leave PASS."""
        enough = len(self.clean) + self.remaining >= MAX_RUNS
        return enough and self._has_enough_stored

    @property
    def is_decided(self) -> bool:
        return self.can_blame and len(self.clean) >= MAX_RUNS

    @property
    def bounds(self) -> list[float]:
        """The slowdown that is proven of each run, disturbed or not."""
        return [change.least for change in self.seen]

    def _p_shifted(self, excess: float, runs: int) -> float:
        """Chance of an *excess* over the tolerance for which the session is to blame."""
        shift = self.reference.shift
        return 0.0 if shift is None else shift.p(excess, self.reference.spread, runs)

    @property
    def reach(self) -> float:
        """How far, in log time, enough runs get that differ by their session alone."""
        shift = self.reference.shift
        runs = max(MAX_RUNS, len(self.used))
        return shift.reach(SHIFT_RISK, self.reference.spread, runs) if shift else 0.0

    @property
    def sessions(self) -> tuple[int, ...]:
        """The stored runs of each session."""
        return self.reference.shift.counts if self.reference.shift else ()

    @property
    def sessions_needed(self) -> int:
        """How many more of them would tell a change like this from a shift; 0 if none."""
        moved = mean([c.proven for c in self.shown])
        spread, runs = self.reference.spread, max(MAX_RUNS, len(self.used))
        return self._sessions_till(
            lambda shift: shift.reach(SHIFT_RISK, spread, runs) < moved
        )

    @property
    def sessions_to_pass(self) -> int:
        """How many more of them would let a time like the stored ones pass; 0 if none."""
        spread, allowed = self.reference.spread, self.limits.noticed
        return self._sessions_till(
            lambda shift: shift.margin(PASS_RISK, spread, 1) < allowed
        )

    def _sessions_till(self, is_enough: Callable[[SessionShift], bool]) -> int:
        shift = self.reference.shift
        if shift is None:
            return 0
        more = range(1, MOST_ASKED + 1 - len(shift.counts))
        found = (n for n in more if is_enough(shift.after(n, SESSION_RUNS)))
        return next(found, 0)

    def shift(self, moved: Sequence[float]) -> Shift:
        """Return what fresh runs that *moved* so far say together."""
        spread, stored = self.reference.spread, self.reference.runs
        return spread.shift(moved, stored, self.suite_context.burst)

    @property
    def p_regressed(self) -> float:
        """Chance of runs so slow if the slowdown were the tolerance."""
        return self._p_beyond([c.proven for c in self.used])

    @property
    def p_improved(self) -> float:
        """Chance of clean runs so fast if the speed-up were the tolerance."""
        return self._p_beyond([-c.feared for c in self.clean])

    def _p_beyond(self, moved: Sequence[float]) -> float:
        """Chance of runs that moved so far if the change were the tolerance."""
        shift, ignored = self.shift(moved), self.limits.ignored
        shifted = self._p_shifted(shift.estimate - ignored, len(moved))
        return max(shift.p_above(ignored), shifted)

    @property
    def all_slow(self) -> bool:
        """Whether every used run is above the stored ones and the tolerance."""
        edge = self.reference.slow + self.limits.ignored
        # The rank test: under exchangeability only the order of runs counts, not their
        # noise.
        return all(change.proven > edge for change in self.used)

    @property
    def all_fast(self) -> bool:
        """Whether every clean run is below the stored ones and the tolerance."""
        edge = self.reference.fast - self.limits.ignored
        return all(change.feared < edge for change in self.clean)

    @property
    def passes(self) -> bool:
        """Whether a slowdown of ``detect`` is ruled out, whatever the day."""
        return self.passes_now and self.hidden_by_shift < self.limits.noticed

    @property
    def passes_now(self) -> bool:
        """Whether a slowdown of ``detect`` is ruled out if today is as the stored days."""
        margin = self.reference.margin(max(1, len(self.used)))
        return bool(self.used) and self._feared + margin < self.limits.noticed

    @property
    def hidden_by_shift(self) -> float:
        """The slowdown, in log time, that a shift between sessions may have hidden."""
        return self._feared + _hidden(self.reference, len(self.used))

    @property
    def _feared(self) -> float:
        return mean([change.feared for change in self.used])

    @property
    def may_pass(self) -> bool:
        """Whether the runs that remain promise to rule a slowdown of ``detect`` out.

        A machine that was slow may be its old self again in the next run.
        """
        coming = self.remaining
        if not self.used or not coming:
            return coming > 0
        reference, runs = self.reference, len(self.used) + coming
        margin = max(reference.margin(runs), _hidden(reference, runs))
        bound = self.limits.noticed - margin
        feared = [change.feared for change in self.used]
        proven = [change.proven for change in self.used]
        return self.reference.spread.promises(bound, feared, coming, proven)

    @property
    def may_regress(self) -> bool:
        return self.remaining > 0 and self.can_blame and self.all_slow

    @property
    def may_improve(self) -> bool:
        """Whether the runs that pass look fast enough to take more of them."""
        if not (self.remaining and self.can_blame and self.all_fast):
            return False
        return self._p_beyond([-c.feared for c in self.used]) < PASS_RISK

    @property
    def is_slowed(self) -> bool:
        """Whether the discount is for a machine that looks slower, not faster."""
        return sum(c.discount.slower - c.discount.faster for c in self.shown) > 0

    @property
    def granted(self) -> float:
        """The discount that counts, in log time, the mean over the runs."""
        slower = mean([change.discount.slower for change in self.shown])
        faster = mean([change.discount.faster for change in self.shown])
        return slower if self.is_slowed else faster

    @property
    def is_suite_wide(self) -> bool:
        """Whether the suite, not a sentinel, asked for the discount."""
        return self.granted <= abs(self.suite_context.shift)

    @property
    def is_discounted_only(self) -> bool:
        """Whether the discount alone keeps these runs from blame or from a pass."""
        if self.granted == 0:
            return False
        bare = replace(
            self,
            seen=tuple(map(_without_discount, self.seen)),
            used=tuple(map(_without_discount, self.used)),
            clean=tuple(map(_without_discount, self.clean)),
        )
        # Judged again without any discount: the verdict names the discount as its
        # reason only if it alone made the difference.
        return bare.passes_now or bare.is_regressed or bare.may_regress

    @property
    def is_regressed(self) -> bool:
        """Whether both tests prove a slowdown."""
        decided = self.is_decided and self.all_slow
        return decided and self._proves([change.proven for change in self.used])

    @property
    def is_shifted_only(self) -> bool:
        """Whether another session alone keeps these runs from blame."""
        if self.reference.shift is None:
            return False
        steady = replace(self.reference, shift=None)
        return replace(self, reference=steady).is_regressed

    @property
    def is_improved(self) -> bool:
        """Whether both tests prove a speed-up."""
        decided = self.is_decided and self.all_fast
        return decided and self._proves([-change.feared for change in self.clean])

    def _proves(self, moved: Sequence[float]) -> bool:
        """Whether neither another session nor scatter explains that runs *moved* so far."""
        shifted = self._p_shifted(mean(moved), len(moved)) >= SHIFT_RISK
        return not shifted and self._p_beyond(moved) < ALPHA

    @property
    def blame(self) -> float:
        """Mean slowdown of enough runs, in log time, below which none is blamed."""
        spread, stored = completed(self.reference)
        runs = max(MAX_RUNS, len(self.used))
        error = spread.error(runs, stored, self.suite_context.burst)
        proof = spread.quantile(ALPHA) * error
        return max(self.limits.ignored + max(proof, self.reference.slow), self.reach)

    @property
    def smallest(self) -> float:
        """Slowdown, in log time, that enough clean runs blame with 90 % probability."""
        spread, stored = completed(self.reference)
        beyond = smallest_blamed(
            spread,
            self.suite_context.risk,
            stored=stored,
            fresh=MAX_RUNS,
            burst=self.suite_context.burst,
        )
        shift, runs = self.reference.shift, MAX_RUNS
        seen = shift.smallest(self.reference.spread, runs) if shift else 0.0
        return max(self.limits.ignored + beyond, seen)

    # Proof by bounds: what disturbed runs, or very few runs, already allow to say.

    @property
    def is_far(self) -> bool:
        """Whether two runs proved it, as all are far beyond the slowest stored one."""
        return self._looks_far and len(self.seen) >= FAR_RUNS

    @property
    def is_bounded(self) -> bool:
        """Whether the t test and the rank test prove it of the bounds of enough runs."""
        enough = 0 < self._proving_runs <= len(self.seen)
        return enough and self._proves(self.bounds)

    @property
    def is_proof_coming(self) -> bool:
        """Whether the runs to come may prove what every run so far shows."""
        seen = len(self.seen)
        return seen < self._proving_runs <= seen + self.remaining

    @property
    def p_bounded(self) -> float:
        """Chance of bounds so high if the slowdown were the tolerance."""
        return self._p_beyond(self.bounds)

    @property
    def limit(self) -> float:
        """Slowdown, in log time, that is never blamed; large with few stored runs."""
        return self.blame if self._has_enough_stored else self._far

    @property
    def _far(self) -> float:
        return max(0.0, self.reference.slow) + log(FAR)

    @property
    def _looks_far(self) -> bool:
        return min(self.bounds) > self._far

    @property
    def _proving_runs(self) -> int:
        """How many runs like these prove a slowdown; 0 if no number of them does."""
        if self._looks_far:
            return FAR_RUNS
        beyond = self._looks_beyond and self._has_enough_stored
        return MAX_RUNS if beyond else 0

    @property
    def _looks_beyond(self) -> bool:
        """Whether every run is slower than the stored ones, and by more than ``detect``."""
        limits, slow = self.limits, self.reference.slow
        return min(self.bounds) > max(slow + limits.ignored, limits.noticed, self.reach)

    @property
    def _has_enough_stored(self) -> bool:
        return self.reference.runs >= ENOUGH_RUNS


def _hidden(reference: StoredTimes, runs: int) -> float:
    """What a shift may hide; nothing where none is assumed or no time has passed."""
    if reference.shift is None or reference.is_now:
        return -inf
    return reference.shift.margin(PASS_RISK, reference.spread, runs)


def _without_discount(change: RunChange) -> RunChange:
    return replace(change, discount=Discount())
