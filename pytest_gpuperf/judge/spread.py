"""How a time varies from run to run when nothing changes, in log time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from math import fsum
from math import inf
from math import sqrt
from typing import Final

from ..model.environment import DeviceKind
from .prior import Prior
from .student import t_isf


LEAST_SIGMA: Final = 0.002
"""Spread below which none is believed, however alike the stored runs."""

SHARED: Final = 0.5
"""Share of the variance that the runs of one session have in common."""

TYPICAL_COST: Final = 1.08
"""Variance of ``typical_time`` of 5 to 20 normal runs over that of their mean, at most."""

ASSUMED_SIGMA: Final = {
    DeviceKind.CUDA: 0.01,
    DeviceKind.CPU: 0.03,
    DeviceKind.SCRIPTED: 0.005,
}
"""Spread of a kind of device on which nothing is stored yet."""

ASSUMED_NU: Final = 10.0
"""Degrees of freedom that an assumed spread is worth."""

PASS_RISK: Final = 0.05
"""Risk that a slowdown of ``detect`` passes in silence."""

POWER: Final = 1.2816
"""Normal quantile of the 90 % with which a smallest detectable change is seen."""

_WORTH: Final = 1.2816
"""Normal quantile of the chance of 1 in 10 for which more runs are made."""

_MOST_LOG: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A standard deviation of log time and the degrees of freedom it is known with."""

    sigma: float
    nu: float

    @classmethod
    def of(cls, logs: Sequence[float], prior: Prior | None) -> Spread | None:
        """Return the spread of *logs*, moderated by *prior*; ``None`` if both are mute."""
        prior_nu = 0.0 if prior is None else prior.nu
        prior_sigma = 0.0 if prior is None else prior.sigma
        nu = len(logs) - 1 + prior_nu
        if nu <= 0:
            return None
        variance = (prior_nu * prior_sigma**2 + scatter(logs)) / nu
        return cls(sigma=max(LEAST_SIGMA, sqrt(variance)), nu=nu)

    @classmethod
    def assumed(cls, kind: DeviceKind) -> Spread:
        """Return the spread of a device on which too little is stored."""
        return cls(sigma=ASSUMED_SIGMA[kind], nu=ASSUMED_NU)

    def error(self, fresh: int, stored: float = inf) -> float:
        """Return the standard error of the mean of *fresh* runs of one session.

        It is taken against where *stored* runs lie, or against a fixed number.
        """
        variance = TYPICAL_COST / stored + SHARED + (1 - SHARED) / fresh
        return self.sigma * sqrt(variance)

    def quantile(self, risk: float) -> float:
        """Return Student's quantile that is exceeded with probability *risk*."""
        return t_isf(risk, self.nu)

    def promises(
        self, bound: float, seen: Sequence[float], coming: int, honest: Sequence[float]
    ) -> bool:
        """Whether *coming* runs are worth their time: they may bring the mean to *bound*.

        They are where one of ten such tests would get there. What is *honest* of the
        runs so far tells what to expect: a normal prior of mean 0 on what the session
        has in common, normal runs around that.
        """
        needed = (bound * (len(seen) + coming) - fsum(seen)) / coming
        runs = len(honest)
        weight = runs * SHARED / (runs * SHARED + 1 - SHARED)
        expected = weight * fsum(honest) / runs
        variance = (1 - weight) * SHARED + (1 - SHARED) / coming
        return needed >= expected - _WORTH * self.sigma * sqrt(variance)


def scatter(logs: Sequence[float]) -> float:
    """Return the sum of squared deviations of *logs* from their mean."""
    mean = fsum(logs) / len(logs)
    return fsum((value - mean) ** 2 for value in logs)


def ratio(log_change: float) -> float:
    """Convert a change of log time to a ratio: 0.034 is 3.4 % slower."""
    return expm1(min(log_change, _MOST_LOG))
