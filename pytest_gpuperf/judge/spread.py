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

MEDIAN_COST: Final = 1.4
"""Variance of a median of a few runs over that of their mean."""

ASSUMED_SIGMA: Final = {
    DeviceKind.CUDA: 0.01,
    DeviceKind.CPU: 0.03,
    DeviceKind.SCRIPTED: 0.005,
}
"""Spread of a kind of device on which nothing is stored yet."""

LOCKED_SIGMA: Final = 0.005
"""The same for a GPU whose clocks are locked."""

ASSUMED_NU: Final = 10.0
"""Degrees of freedom that an assumed spread is worth."""

POWER: Final = 1.2816
"""Normal quantile of the 90 % with which a smallest detectable change is seen."""

_HOPE: Final = 3.0
"""Standard deviations by which the runs to come may beat the fastest one seen."""

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
    def assumed(cls, kind: DeviceKind, *, locked: bool = False) -> Spread:
        """Return the spread of a device on which too little is stored."""
        return cls(sigma=LOCKED_SIGMA if locked else ASSUMED_SIGMA[kind], nu=ASSUMED_NU)

    def error(self, fresh: int, stored: float = inf) -> float:
        """Return the standard error of the mean of *fresh* runs of one session.

        It is taken against the median of *stored* runs, or against a fixed number.
        """
        variance = MEDIAN_COST / stored + SHARED + (1 - SHARED) / fresh
        return self.sigma * sqrt(variance)

    def quantile(self, risk: float) -> float:
        """Return Student's quantile that is exceeded with probability *risk*."""
        return t_isf(risk, self.nu)

    def may_reach(
        self, bound: float, seen: Sequence[float], coming: int, best: float
    ) -> bool:
        """Whether *coming* runs may yet bring the mean of all down to *bound*.

        They may not where their own mean would have to lie three standard deviations
        below *best*, the fastest of the *seen* runs.
        """
        needed = (bound * (len(seen) + coming) - fsum(seen)) / coming
        return needed >= best - _HOPE * self.sigma


def scatter(logs: Sequence[float]) -> float:
    """Return the sum of squared deviations of *logs* from their mean."""
    mean = fsum(logs) / len(logs)
    return fsum((value - mean) ** 2 for value in logs)


def ratio(log_change: float) -> float:
    """Convert a change of log time to a ratio: 0.034 is 3.4 % slower."""
    return expm1(min(log_change, _MOST_LOG))
