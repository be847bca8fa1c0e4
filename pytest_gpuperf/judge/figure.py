"""Numbers as they stand in the sentence of a verdict."""

from __future__ import annotations

from typing import Final

from ..model.metric import MIB
from ..model.metric import Metric
from ..model.metric import Unit


FEW_BYTES: Final = 10_000
"""Below which nobody thinks in MiB."""

_DIGITS: Final = 4
_MOST_DIGITS: Final = 17  # enough to tell any two floats apart


def figure(metric: Metric, value: float, digits: int = _DIGITS) -> str:
    """*value* with its unit, to four digits: ``12.05 ms``, ``900 MiB``, ``1.3x``, ``35 %``."""
    if metric.unit is Unit.BYTES:
        few = 0 < abs(value) < FEW_BYTES
        return f"{value:.0f} B" if few else f"{plain(value / MIB, digits)} MiB"
    if metric.unit is Unit.MS:
        return f"{plain(value, digits)} ms"
    if metric.unit is Unit.RATIO:
        return f"{plain(value, digits)}x"
    if metric.unit is Unit.PERCENT:
        return f"{plain(value, digits)} %"
    return plain(value, digits)


def against(metric: Metric, now: float, limit: float) -> str:
    """Both values, with as many digits as it takes to tell them apart."""
    for digits in range(_DIGITS, _MOST_DIGITS):
        left, right = figure(metric, now, digits), figure(metric, limit, digits)
        if left != right or now == limit:
            return f"{left} against {right}"
    return f"{now} against {limit}"


def plain(value: float, digits: int = _DIGITS) -> str:
    """Write *value* without an exponent where it is large; whole numbers in full."""
    if abs(value) >= 10**digits or value == int(value):
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def percent(ratio: float) -> str:
    """Write a ratio of 0.01 as ``1 %``."""
    return f"{100 * ratio:.4g} %"


def change(now: float, baseline: float) -> str:
    """Relative change with its sign: ``+0.8 %``."""
    return f"{100 * (now / baseline - 1):+.1f} %"
