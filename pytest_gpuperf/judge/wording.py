"""Formats numbers for the sentence of a verdict."""

from __future__ import annotations

from typing import Final

from ..model.metric import Metric, Unit


BYTE_UNITS: Final = (("MiB", 2**20, 0.1), ("KiB", 2**10, 1.0))
"""Symbols of bytes, their sizes, and how many of it take one: budgets are in MiB."""

_DIGITS: Final = 4
_MOST_DIGITS: Final = 5
"""Significant digits beyond which nobody compares two numbers by eye."""


def figure(metric: Metric, value: float, digits: int = _DIGITS) -> str:
    """*value* with its unit, to four digits: ``12.05 ms``, ``900 MiB``, ``1.3x``, ``35 %``."""
    return _written(metric, value, digits, value)


def against(metric: Metric, now: float, limit: float) -> str:
    """Both values in one unit, with as many digits as it takes to tell them apart.

    Bytes that differ by less have their difference behind them.
    """
    largest = max(abs(now), abs(limit))
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        left = _written(metric, now, digits, largest)
        right = _written(metric, limit, digits, largest)
        if left != right:
            return f"{left} against {right}"
    apart = now - limit
    if metric.unit is not Unit.BYTES or not round(apart):
        return f"{left} against {right}"
    return f"{left} against {right}, {apart:+.0f} B"


def _written(metric: Metric, value: float, digits: int, largest: float) -> str:
    """Write *value* in the unit in which *largest* is no small number."""
    if metric.unit is Unit.BYTES:
        for symbol, size, begin in BYTE_UNITS:
            if abs(largest) >= begin * size:
                return f"{plain(value / size, digits)} {symbol}"
        return f"{value:.0f} B"
    return f"{plain(value, digits)}{metric.unit.suffix}"


def plain(value: float, digits: int = _DIGITS) -> str:
    """Write *value* without an exponent where it is large; whole numbers in full."""
    if abs(value) >= 10**digits or value == int(value):
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def percent(ratio: float) -> str:
    """Write a ratio of 0.01 as ``1 %``."""
    return f"{100 * ratio:.4g} %"


def times(ratio: float) -> str:
    """Write how many times: ``4 times``, ``4.21 times``, ``38 times``."""
    return f"{plain(ratio, 3)} times"


def change(now: float, baseline: float) -> str:
    """Relative change with its sign: ``+0.8 %``."""
    return signed(now / baseline - 1)


def signed(ratio: float) -> str:
    """Write a change of 0.008 as ``+0.8 %``."""
    return f"{100 * ratio:+.1f} %"


WOULD_HAVE_FAILED: Final = "would have failed"
"""What is said of a failure that is a warning."""
