"""Digamma and trigamma: mean and variance of the logarithm of a chi-square variable.

Recurrence up to where the asymptotic series is exact to double precision (Abramowitz
and Stegun 6.3.5, 6.3.18, 6.4.6 and 6.4.12).
"""

from __future__ import annotations

from math import log
from math import sqrt
from typing import Final


_LARGE: Final = 15.0
_HALVINGS: Final = 200


def digamma(x: float) -> float:
    """Return the derivative of log Γ at *x* > 0."""
    below = 0.0
    while x < _LARGE:
        below += 1 / x
        x += 1
    f = 1 / (x * x)
    series = f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f / 132))))
    return log(x) - 0.5 / x - series - below


def trigamma(x: float) -> float:
    """Return the second derivative of log Γ at *x* > 0."""
    below = 0.0
    while x < _LARGE:
        below += 1 / (x * x)
        x += 1
    f = 1 / (x * x)
    series = f * (1 / 6 - f * (1 / 30 - f * (1 / 42 - f * (1 / 30 - f * 5 / 66))))
    return (1 + 0.5 / x + series) / x + below


def inverse_trigamma(value: float) -> float:
    """Return the x > 0 at which trigamma is *value* > 0."""
    low, high = _bracket(value)
    for _ in range(_HALVINGS):
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
