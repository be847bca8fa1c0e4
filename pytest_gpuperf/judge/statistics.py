"""How runs scatter, as far as it is known: of one test, of a suite, between sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, fsum, hypot, inf, isfinite, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist, fmean, median, variance
from typing import Final

from ..model.environment import DeviceKind


# Digamma and trigamma: mean and variance of the logarithm of a chi-square variable.
#
# Recurrence up to where the asymptotic series is exact to double precision (Abramowitz
# and Stegun 6.3.5, 6.3.18, 6.4.6 and 6.4.12).

_LARGE_ARGUMENT: Final = 15.0
_HALVINGS: Final = 200


def digamma(x: float) -> float:
    """Return the derivative of log Γ at *x* > 0."""
    below = 0.0
    while x < _LARGE_ARGUMENT:
        below += 1 / x
        x += 1
    f = 1 / (x * x)
    series = f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f / 132))))
    return log(x) - 0.5 / x - series - below


def trigamma(x: float) -> float:
    """Return the second derivative of log Γ at *x* > 0."""
    below = 0.0
    while x < _LARGE_ARGUMENT:
        below += 1 / (x * x)
        x += 1
    f = 1 / (x * x)
    series = f * (1 / 6 - f * (1 / 30 - f * (1 / 42 - f * (1 / 30 - f * 5 / 66))))
    return (1 + 0.5 / x + series) / x + below


def inverse_trigamma(value: float) -> float:
    """Return the x > 0 at which trigamma is *value* > 0."""
    low, high = _bracket(value)
    for _ in range(_HALVINGS):
        # Bisection in the logarithm: the root may lie anywhere over many powers of ten.
        middle = sqrt(low * high)
        if middle in {low, high}:
            break
        if trigamma(middle) > value:
            low = middle
        else:
            high = middle
    return sqrt(low * high)


def _bracket(value: float) -> tuple[float, float]:
    """Bound the inverse: 1/x + 1/(2x²) < trigamma(x) < 1/x + 1/x² for every x > 0."""
    low = (1 + sqrt(1 + 2 * value)) / (2 * value)
    high = (1 + sqrt(1 + 4 * value)) / (2 * value)
    return low, high


# The prior of one test's spread, from the spread of all tests of the suite.
#
# The empirical Bayes fit of limma (Smyth, Statistical Applications in Genetics and
# Molecular Biology 3, 2004, section 6.2): the logarithms of the tests' variances
# scatter more than their degrees of freedom explain; what is left over is how much
# tests differ.

FEWEST_TESTS: Final = 8
"""Tests below which a suite says nothing about one test."""

MOST_NU: Final = 50.0
"""Degrees of freedom beyond which a prior is not believed, however alike the tests."""

_ALIKE: Final = 1e-4
"""Excess of the scatter of log variances below which the tests count as alike."""

_OFFSET: Final = 1e-5
"""Share of the median that replaces a variance of 0, as in limma."""

_LEAST: Final = 1e-12
"""Variance that replaces 0 if the median is 0 as well: a spread of 0.0001 %."""


def fit_prior(variances: Sequence[float], nu: Sequence[float] | float) -> Spread | None:
    """Fit the prior of a suite, which weighs as much as ``nu`` more runs; ``None`` below 8 tests.

    *variances* are of log time, one a test, with *nu* degrees of freedom: one number,
    or one a test. Raises ``ValueError`` if the numbers cannot be variances.
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
        return Spread(sigma=sqrt(exp(fmean(logs))), nu=MOST_NU)
    half = inverse_trigamma(excess)
    location = fmean(logs) + digamma(half) - log(half)
    return Spread(sigma=sqrt(exp(location)), nu=min(2 * half, MOST_NU))


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


# The spread of a time between runs of unchanged code, in log time.

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

ALPHA: Final = 0.01
"""Risk of blaming unchanged code, over all tests that are judged together."""

INTERVAL_RISK: Final = 0.025
"""Risk on each side of the reported interval: 95 % lie inside."""

PASS_RISK: Final = 0.05
"""Risk that a slowdown of ``detect`` passes in silence."""

POWER_QUANTILE: Final = 1.2816
"""Normal quantile of the 90 % with which a smallest detectable change is seen."""

_WORTH: Final = 1.2816
"""Normal quantile of the chance of 1 in 10 for which more runs are made."""

_MOST_LOG: Final = 300.0

ODD: Final = 25.0
"""Standard deviations of its calm runs beyond which a stored run is an odd one.

Fewer than 1 in 10,000 series of 6 to 20 normal runs have one (simulated, 400,000 each).
"""

FEWEST_CALM: Final = 6
"""Runs below which none can be called odd: too few are left to say what is normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How far one side's times are above the other's, in log time, and how surely.

    The standard ``error`` of the ``estimate`` is known with ``nu`` degrees of freedom.
    """

    estimate: float
    error: float
    nu: float

    def p_above(self, limit: float) -> float:
        """Return the chance of an estimate so high if the truth were *limit*."""
        return t_sf((self.estimate - limit) / self.error, self.nu)

    def margin(self, risk: float) -> float:
        """Return the half-width of an interval that is left with *risk* on each side."""
        return t_isf(risk, self.nu) * self.error

    def least(self, risk: float) -> float:
        """Return the lower end of that interval."""
        return self.estimate - self.margin(risk)

    def most(self, risk: float) -> float:
        """Return its upper end."""
        return self.estimate + self.margin(risk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A standard deviation of log time and the degrees of freedom it is known with."""

    sigma: float
    nu: float

    @classmethod
    def of(cls, logs: Sequence[float], prior: Spread | None) -> Spread | None:
        """Return the spread of *logs*, moderated by *prior*; ``None`` if unknown."""
        return cls.of_calm(without_odd(logs), prior)

    @classmethod
    def of_calm(cls, calm: Sequence[float], prior: Spread | None) -> Spread | None:
        """Return it of logs in which none is odd."""
        prior_nu = 0.0 if prior is None else prior.nu
        prior_sigma = 0.0 if prior is None else prior.sigma
        nu = len(calm) - 1 + prior_nu
        if nu <= 0:
            return None
        # The moderated variance of limma: prior and own scatter, weighted by their
        # degrees of freedom.
        variance = (prior_nu * prior_sigma**2 + scatter(calm)) / nu
        return cls(sigma=max(LEAST_SIGMA, sqrt(variance)), nu=nu)

    @classmethod
    def assumed(cls, kind: DeviceKind, scatter: float = 0.0) -> Spread:
        """Return the spread of a device on which too little is stored.

        *scatter* is that of a metric which varies more than the device's step times.
        """
        return cls(sigma=max(ASSUMED_SIGMA[kind], scatter), nu=ASSUMED_NU)

    def error(self, fresh: int, stored: float = inf, burst: float = 0.0) -> float:
        """Return the standard error of the mean of *fresh* runs of one session.

        It is taken against where *stored* runs lie, or against a fixed number. What others
        do, a *burst*, lasts for longer than a run and does not average out.
        """
        # What the runs of a session share does not average out, so more fresh runs
        # shrink only the rest.
        variance = TYPICAL_COST / stored + SHARED + (1 - SHARED) / fresh
        return hypot(self.sigma * sqrt(variance), burst)

    def shift(
        self, moved: Sequence[float], stored: float = inf, burst: float = 0.0
    ) -> Shift:
        """Return what fresh runs that *moved* so far say together; see ``error``."""
        error = self.error(len(moved), stored, burst)
        return Shift(estimate=mean(moved), error=error, nu=self.nu)

    def quantile(self, risk: float) -> float:
        """Return Student's quantile that is exceeded with probability *risk*."""
        return t_isf(risk, self.nu)

    def promises(
        self, bound: float, seen: Sequence[float], coming: int, honest: Sequence[float]
    ) -> bool:
        """Whether *coming* runs are worth their time: they may bring the mean to *bound*.

        They are if one of ten such tests would get there. The *honest* part of the runs
        so far says what to expect: a normal prior of mean 0 on what the session has in
        common, and normal runs around that.
        """
        needed = (bound * (len(seen) + coming) - fsum(seen)) / coming
        runs = len(honest)
        weight = runs * SHARED / (runs * SHARED + 1 - SHARED)
        expected = weight * fsum(honest) / runs
        variance = (1 - weight) * SHARED + (1 - SHARED) / coming
        return needed >= expected - _WORTH * self.sigma * sqrt(variance)


# The shift of a time from one session to another, in log time.
#
# Heat, a driver, a neighbour in the rack: what is different today is in every run of
# today. The variance of a difference between a new session and stored ones is a sum of
# two components, between sessions and from run to run, and its degrees of freedom are
# those of Satterthwaite (Biometrics Bulletin 2, 1946).

ASSUMED_SHIFT: Final = {DeviceKind.CUDA: 0.007}
"""Standard deviation between sessions that is assumed until it is known.

Other kinds are judged by the spread from run to run alone, of which ``SHARED`` is taken
to be that of the session.
"""

MOST_SHIFT: Final = 0.03
"""Largest standard deviation between sessions that a machine is believed to have."""

SHIFT_RISK: Final = 0.0005
"""Risk to take another session for other code, where no code has changed."""

MOST_POOLED_NU: Final = 6.0
"""Degrees of freedom that the suite's shift is worth for one test, at most.

At that, Student's quantile of half of ``SHIFT_RISK`` is twice the normal one: a test may
shift by twice what the suite does on average.
"""

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShift:
    """What a time shifts by from one session to another.

    ``sigma`` is the standard deviation of the mean of a session's runs, known with
    ``nu`` degrees of freedom; 0 if it is assumed. ``counts`` are the stored runs by
    session.
    """

    sigma: float
    nu: float
    counts: tuple[int, ...]

    @classmethod
    def of(
        cls, sessions: Sequence[Sequence[float]], pooled: Spread | None, assumed: float
    ) -> SessionShift:
        """Derive it from the logs of stored runs by session, and what the suite *pooled*."""
        own, nu = shift_variance(sessions)
        if pooled is not None and pooled.nu > 0:
            together = (pooled.nu * pooled.sigma**2 + nu * own) / (pooled.nu + nu)
            # Not the sum of both: tests that were measured together shift together.
            own, nu = max(own, together), max(nu, pooled.nu)
        # The assumption counts as much as one more session, and only upwards.
        variance = max(own, (assumed**2 + nu * own) / (1 + nu))
        counts = tuple(map(len, sessions))
        return cls(sigma=sqrt(variance), nu=nu, counts=counts)

    def p(self, moved: float, spread: Spread, fresh: int) -> float:
        """Return the chance that the mean of *fresh* runs is so far from the stored ones.

        It is small if the shifts that were seen do not explain it, or if no shift does
        that a machine is believed to have. Either way has half of a risk.
        """
        error, nu = self._error(spread, fresh)
        seen = t_sf(moved / error, nu) if nu else 1.0
        believed = 1 - _NORMAL.cdf(moved / self._most(spread, fresh))
        return min(1.0, 2 * min(seen, believed))

    def reach(self, risk: float, spread: Spread, fresh: int) -> float:
        """Return how far *fresh* runs get with a probability of *risk*."""
        error, nu = self._error(spread, fresh)
        seen = t_isf(risk / 2, nu) * error if nu else inf
        return min(seen, _normal(risk / 2) * self._most(spread, fresh))

    def margin(self, risk: float, spread: Spread, fresh: int) -> float:
        """Return what a shift may hide of *fresh* runs, but for a probability of *risk*.

        Other than to blame, it takes one way only, so that has all of the risk.
        """
        return self.reach(2 * risk, spread, fresh)

    def smallest(self, spread: Spread, fresh: int) -> float:
        """Return the change that no shift explains with a probability of 90 %."""
        error, _ = self._error(spread, fresh)
        return self.reach(SHIFT_RISK, spread, fresh) + POWER_QUANTILE * error

    def after(self, more: int, runs: int) -> SessionShift:
        """Return what would be known after so many *more* sessions of *runs* each."""
        nu = max(self.nu, len(self.counts) + more - 1)
        counts = (*self.counts, *[runs] * more)
        return SessionShift(sigma=self.sigma, nu=nu, counts=counts)

    def _error(self, spread: Spread, fresh: int) -> tuple[float, float]:
        """Return the standard error of *fresh* runs, and its degrees of freedom."""
        weight = _weight(self.counts)
        shifted = self.sigma**2 * weight
        # What runs scatter is in the means of the stored sessions already, except
        # where those have more runs.
        stored = weight * _within(self.counts)
        rest = max(0.0, 1 / fresh + TYPICAL_COST / sum(self.counts) - stored)
        scattered = spread.sigma**2 * rest
        known = shifted**2 / self.nu if self.nu else inf
        nu = (shifted + scattered) ** 2 / (known + scattered**2 / spread.nu)
        return sqrt(shifted + scattered), nu

    def _most(self, spread: Spread, fresh: int) -> float:
        shifted = max(self.sigma, MOST_SHIFT) ** 2 * _weight(self.counts)
        scattered = 1 / fresh + TYPICAL_COST / sum(self.counts)
        return sqrt(shifted + spread.sigma**2 * scattered)


@lru_cache(maxsize=1024)
def _normal(risk: float) -> float:
    return _NORMAL.inv_cdf(1 - risk)


@lru_cache(maxsize=1024)
def _weight(counts: tuple[int, ...]) -> float:
    """Variance of a new session against stored ones over that of one session."""
    runs = sum(counts)
    return 1 + fsum((count / runs) ** 2 for count in counts)


@lru_cache(maxsize=1024)
def _within(counts: tuple[int, ...]) -> float:
    """Share of the variance from run to run that the mean of a session has."""
    return fmean(1 / count for count in counts)


def shift_variance(sessions: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the variance of the sessions' means, and its degrees of freedom."""
    nu = len(sessions) - 1
    return (scatter([fmean(logs) for logs in sessions]) / nu, nu) if nu else (0.0, 0)


def pooled_shift(variances: Sequence[tuple[float, float]]) -> Spread | None:
    """Return what the tests of a suite say together; ``None`` if all are of one session.

    *variances* are those of the tests' sessions, with their degrees of freedom. Tests
    that were measured together may shift together: the standard deviation of a sum is
    that of its parts added up, at most, which leaves the degrees of freedom returned.
    """
    known = [(variance, nu) for variance, nu in variances if nu > 0]
    if not known:
        return None
    freedom = fsum(nu for _, nu in known)
    worth = freedom**2 / fsum(sqrt(nu) for _, nu in known) ** 2
    sigma = sqrt(fsum(variance * nu for variance, nu in known) / freedom)
    return Spread(sigma=sigma, nu=min(worth, MOST_POOLED_NU))


def without_odd(logs: Sequence[float]) -> list[float]:
    """Return *logs* without odd ones, a quarter of them at most; all of fewer than six.

    What is normal is derived from the three quarters that are closest to the median.
    Otherwise one outlier would make a spread in which every slowdown hides.
    """
    if len(logs) < FEWEST_CALM:
        return list(logs)
    middle = median(logs)
    nearest = sorted(logs, key=lambda value: abs(value - middle))
    core = nearest[: len(logs) - len(logs) // 4]
    far = ODD * max(LEAST_SIGMA, sqrt(scatter(core) / (len(core) - 1)))
    return [value for value in logs if abs(value - middle) <= far]


def mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def scatter(logs: Sequence[float]) -> float:
    """Return the sum of squared deviations of *logs* from their mean."""
    middle = mean(logs)
    return fsum((value - middle) ** 2 for value in logs)


def ratio(log_change: float) -> float:
    """Convert a change of log time to a ratio: 0.034 is 3.4 % slower."""
    return expm1(min(log_change, _MOST_LOG))


# Tails of Student's t and of F, for any real numbers of degrees of freedom.
#
# Both are regularised incomplete beta functions (Abramowitz and Stegun 26.7.1 and
# 26.6.2), evaluated by Lentz's method on their continued fraction (Press et al.,
# Numerical Recipes, 6.4). The standard library has none of them.


_HALF: Final = 0.5
_TINY: Final = 1e-300
_PRECISE: Final = 3e-16
_MOST_TERMS: Final = 10_000
_LARGE: Final = 50.0
_MOST_STEPS: Final = 60
_SMALL_STEP: Final = 1e-9
"""Relative step after which an error, of its square, is below double precision."""

_LARGEST: Final = 700.0
"""Log of a factor that is still a number."""


def t_sf(t: float, nu: float) -> float:
    """P(T > *t*) for *nu* degrees of freedom.

    Raises ``ValueError`` if *nu* is not a positive number.
    """
    if not (nu > 0 and isfinite(nu)):
        msg = f"degrees of freedom must be a positive number, found {nu}"
        raise ValueError(msg)
    tail = _tail(abs(t) / sqrt(nu), nu)
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_isf(p: float, nu: float) -> float:
    """Return the t with P(T > t) = *p*, to the precision of ``t_sf``.

    Raises ``ValueError`` if *p* does not lie between 0 and 1, or *nu* is not a
    positive number.
    """
    if not 0 < p < 1:
        msg = f"a tail probability must be between 0 and 1, found {p}"
        raise ValueError(msg)
    if p >= _HALF:
        return 0.0 if p == _HALF else -t_isf(1 - p, nu)
    t = _near(_NORMAL.inv_cdf(1 - p), nu)
    # Newton's method in the logarithms of both: there the tail is concave, so that each
    # step after the first comes from above.
    for _ in range(_MOST_STEPS):
        tail = t_sf(t, nu)
        if not tail:  # beyond the largest number
            break
        step = log(tail / p) * tail / (t * _density(t, nu))
        t *= exp(min(step, _LARGEST))
        if abs(step) <= _SMALL_STEP:
            break
    return t


def _near(z: float, nu: float) -> float:
    """Return about where Student's t has the tail that the normal one has at *z* > 0.

    Gaver and Kafadar, The American Statistician 38, 1984.
    """
    if nu < 1:
        return z
    stretched = z * z * (nu - 5 / 6) / (nu - 2 / 3 + 1 / (10 * nu)) ** 2
    return sqrt(nu * expm1(min(stretched, _LARGEST)))


def _density(t: float, nu: float) -> float:
    """Return the density of Student's t."""
    front = _log_gamma_ratio(nu / 2) - log(pi * nu) / 2
    return exp(front - (nu + 1) / 2 * log1p(t * t / nu))


def f_sf(ratio: float, above: float, below: float) -> float:
    """P(F > *ratio*) of two variances with *above* and *below* degrees of freedom.

    Both are positive numbers; *ratio* is 0 or more.
    """
    if not ratio:
        return 1.0
    x = below / (below + above * ratio)
    a, b = below / 2, above / 2
    front = exp(
        lgamma(a + b)
        - lgamma(a)
        - lgamma(b)
        + a * log(x)
        + b * log(above * ratio / below * x)
    )
    # As below: the fraction converges fast on one side alone.
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _tail(scaled: float, nu: float) -> float:
    """Return P(T > scaled * sqrt(nu)): half of I_x(nu/2, 1/2), x = 1 / (1 + scaled²)."""
    if scaled == 0:
        return 0.5
    a, b = nu / 2, 0.5
    far = scaled > 1
    ratio = (1 / scaled if far else scaled) ** 2
    log_x = -log1p(ratio) - (2 * log(scaled) if far else 0)
    log_rest = -log1p(ratio) + (0 if far else 2 * log(scaled))
    front = exp(_log_gamma_ratio(a) - log(pi) / 2 + a * log_x + b * log_rest)
    x = exp(log_x)
    # The fraction converges fast only on this side; the other one uses the symmetry
    # I_x(a, b) = 1 - I_{1-x}(b, a).
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / (2 * a)
    return 0.5 - front * _continued_fraction(b, a, exp(log_rest)) / (2 * b)


def _log_gamma_ratio(a: float) -> float:
    """Return log(Γ(a + 1/2) / Γ(a)), without the cancellation of large terms."""
    if a < _LARGE:
        return lgamma(a + 0.5) - lgamma(a)
    return log(a) / 2 - (1 / 8 - (1 / 192 - 1 / (640 * a * a)) / (a * a)) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function."""
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    value = d
    for m in range(1, _MOST_TERMS):
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1) * place)
        odd = -(a + m) * (a + b + m) * x / (place * (place + 1))
        d = 1 / ((1 + even * d) or _TINY)
        c = (1 + even / c) or _TINY
        value *= c * d
        d = 1 / ((1 + odd * d) or _TINY)
        c = (1 + odd / c) or _TINY
        value *= c * d
        if abs(c * d - 1) <= _PRECISE:
            break
    return value
