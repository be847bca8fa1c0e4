"""What the spread of all tests of a suite says about the spread of one.

The empirical Bayes fit of limma (Smyth, Statistical Applications in Genetics and
Molecular Biology 3, 2004, section 6.2): the logarithms of the tests' variances scatter
more than their degrees of freedom explain; what is left over is how much tests differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from math import isfinite
from math import log
from math import sqrt
from statistics import fmean
from statistics import median
from statistics import variance
from typing import Final

from .polygamma import digamma
from .polygamma import inverse_trigamma
from .polygamma import trigamma


FEWEST_TESTS: Final = 8
"""Tests below which a suite says nothing about one test."""

MOST_NU: Final = 50.0
"""Degrees of freedom beyond which a prior is not believed, however alike the tests."""

_ALIKE: Final = 1e-4
"""Excess of the scatter of log variances below which the tests count as alike."""

_OFFSET: Final = 1e-5
"""Share of the median that stands for a variance of 0, as in limma."""

_LEAST: Final = 1e-12
"""Variance that stands for 0 where the median is 0 as well: a spread of 0.0001 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A spread from run to run, in log time, that weighs as much as ``nu`` more runs."""

    sigma: float
    nu: float


def fit_prior(variances: Sequence[float], nu: Sequence[float] | float) -> Prior | None:
    """Fit the prior of a suite; ``None`` below 8 tests.

    *variances* are of log time, one a test, with *nu* degrees of freedom: one number,
    or one a test. Raises ``ValueError`` where the numbers cannot be variances.
    """
    freedoms = nu if isinstance(nu, Sequence) else [nu] * len(variances)
    _check(variances, freedoms)
    if len(variances) < FEWEST_TESTS:
        return None
    least = max(_LEAST, _OFFSET * median(variances))
    logs = [
        log(max(value, least)) - digamma(df / 2) + log(df / 2)
        for value, df in zip(variances, freedoms, strict=True)
    ]
    excess = variance(logs) - fmean(trigamma(df / 2) for df in freedoms)
    if excess <= _ALIKE:
        return Prior(sigma=sqrt(exp(fmean(logs))), nu=MOST_NU)
    half = inverse_trigamma(excess)
    location = fmean(logs) + digamma(half) - log(half)
    return Prior(sigma=sqrt(exp(location)), nu=min(2 * half, MOST_NU))


def _check(variances: Sequence[float], freedoms: Sequence[float]) -> None:
    if len(variances) != len(freedoms):
        msg = f"{len(variances)} variances with {len(freedoms)} degrees of freedom"
        raise ValueError(msg)
    for value in variances:
        if not (isfinite(value) and value >= 0):
            msg = f"a variance must be a number of 0 or more, found {value}"
            raise ValueError(msg)
    for df in freedoms:
        if not (isfinite(df) and df > 0):
            msg = f"degrees of freedom must be a positive number, found {df}"
            raise ValueError(msg)
