"""The smallest slowdown that can be detected, given the scatter of the stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from statistics import median
from typing import Final

from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import FULL_RUNS
from ..model.verdict import DetectableChange
from ..model.verdict import SuiteAcuity
from .context import SuiteContext
from .readings import MAX_RUNS
from .readings import Limits
from .readings import StoredTimes
from .statistics import PASS_RISK
from .statistics import POWER_QUANTILE
from .statistics import SHARED
from .statistics import Spread
from .statistics import ratio


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
