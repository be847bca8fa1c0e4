"""Tails of Student's t and of F, for any real numbers of degrees of freedom.

Both are regularised incomplete beta functions (Abramowitz and Stegun 26.7.1 and 26.6.2),
evaluated by Lentz's method on their continued fraction (Press et al., Numerical Recipes,
6.4). The standard library has none of them.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, isfinite, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Final


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

_NORMAL: Final = NormalDist()


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
