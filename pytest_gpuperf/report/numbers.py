"""Numbers as people read them: four significant digits and a unit that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..model.metrics import (
    COMPILED,
    METRICS,
    OCCASIONAL,
    PEAK_ALLOCATED,
    Metric,
    MetricKind,
    Unit,
)
from ..visible import visible


SIGNIFICANT_DIGITS: Final = 4
"""Significant digits, as in a baseline file."""

PROGRAM_DIGITS: Final = 6
"""Significant digits of what is written for other programs."""

MOST_DIGITS: Final = 5
"""Significant digits beyond which nobody distinguishes two numbers by eye."""

EXACT_DIGITS: Final = 15
"""Every integer of so many digits is represented exactly by a float."""

SMALLEST: Final = {Unit.MS: "ms", Unit.BYTES: "B"}
"""Written after whole numbers of bytes, and after a time of nothing."""

ROUND_PERCENT: Final = 1000
"""Changes from which on nobody reads tenths of a percent."""

UNLIKE: Final = 2
"""Times another size from which on each has its own unit."""

LEAST_PERCENT: Final = 0.05
"""Changes below it would be written as 0.0 %."""


def metric_named(name: str) -> Metric:
    """Look a metric up; one that only another version measures is a plain number."""
    plain = Metric(name=name, unit=Unit.COUNT, kind=MetricKind.EXACT, summary="")
    return METRICS.get(name, plain)


def each(metric: Metric) -> str:
    """Return what a count is of: of a step, but for those of compiling."""
    if metric.unit is not Unit.COUNT or metric in COMPILED:
        return ""
    return " in some steps" if metric in OCCASIONAL.values() else " per step"


def rounded(value: float) -> float:
    """*value* for a program: a whole number as one, others to six significant digits."""
    if isinstance(value, int) or value.is_integer():
        return int(value)
    return float(f"{value:.{PROGRAM_DIGITS}g}")


def format_value(metric: Metric, value: float, digits: int = SIGNIFICANT_DIGITS) -> str:
    """*value* with its unit: ``12.03 ms``, ``31.20 us``, ``36.30 MiB``, ``512 B``, ``1.300x``, ``35.00 %``."""
    fitting = _fitting(metric, value, digits)
    if fitting is None and metric.unit is Unit.COUNT:
        return _count(value)
    if not metric.scales:
        return f"{_significant(value, digits)}{metric.unit.suffix}"
    if fitting is None:
        return f"{value:.0f} {SMALLEST[metric.unit]}"
    symbol, size = fitting
    return f"{_significant(value / size, digits)} {symbol}"


def size_in_words(nbytes: float, digits: int = SIGNIFICANT_DIGITS) -> str:
    """Write *nbytes* of memory, such as ``36.30 MiB``."""
    return format_value(PEAK_ALLOCATED, nbytes, digits)


def _count(value: float) -> str:
    is_whole = isinstance(value, int) or value.is_integer()
    return f"{value:.{EXACT_DIGITS if is_whole else MOST_DIGITS}g}"


MOST_PLAIN: Final = 1000
"""From here on a rate has no digits behind the point."""


def rates_in_words(rates: Mapping[str, float]) -> str:
    """Write *rates* by metric, such as ``74,240 samples/s``; nothing if there are none."""
    return ", ".join(
        f"{value:,.4g} {name.removesuffix('_per_s')}/s"
        if value < MOST_PLAIN
        else f"{value:,.0f} {name.removesuffix('_per_s')}/s"
        for name, value in rates.items()
    )


def unit_of(metric: Metric, value: float) -> tuple[str, float]:
    """Return the symbol of the unit that *value* is written in, and its size."""
    smallest = SMALLEST.get(metric.unit, metric.unit.suffix.strip())
    return _fitting(metric, value, SIGNIFICANT_DIGITS) or (smallest, 1.0)


def _fitting(metric: Metric, value: float, digits: int) -> tuple[str, float] | None:
    """Return the first unit that *value* has enough of."""
    for symbol, size, begin in metric.scales:
        # Rounded first: 999.96 us would otherwise be written as 1000 us and not as
        # 1.000 ms.
        if float(f"{value / size:.{digits}g}") >= begin:
            return symbol, size
    return None


def texts_apart(metric: Metric, *values: float | None) -> dict[float, str]:
    """Write each known one of *values* as ``format_apart`` does."""
    known = [value for value in values if value is not None]
    return dict(zip(known, format_apart(metric, *known), strict=True))


def format_apart(metric: Metric, *values: float) -> tuple[str, ...]:
    """*values* with as many digits as it takes to tell different ones apart, at most five."""
    texts: tuple[str, ...] = ()
    for digits in range(SIGNIFICANT_DIGITS, MOST_DIGITS + 1):
        texts = tuple(_among(metric, value, values, digits) for value in values)
        if len(set(texts)) == len(set(values)):
            return texts
    return tuple(map(_count, values)) if metric.unit is Unit.COUNT else texts


def excess_alike(metric: Metric, now: float, limit: float) -> str:
    """Say by how many bytes *now* is off a *limit* that is written as the same number."""
    first, second = format_apart(metric, now, limit)
    if metric.unit is not Unit.BYTES or first != second or now == limit:
        return ""
    return f" ({format_change(metric, limit, now)})"


def _among(metric: Metric, value: float, others: Sequence[float], digits: int) -> str:
    """Write *value* in the unit of the least of the *others*, or its own if they are far apart."""
    sizes = [abs(other) for other in others if other]
    if metric.unit is not Unit.BYTES or not value or max(sizes) >= UNLIKE * min(sizes):
        return format_value(metric, value, digits)
    symbol, size = unit_of(metric, min(sizes))
    number = f"{value:.0f}" if size == 1 else _significant(value / size, digits)
    return f"{number} {symbol}"


def format_change(metric: Metric, old: float, new: float) -> str:
    """The way from *old* to *new*: ``+20.3 %``, ``+1``, ``+512 B``.

    It is a ratio, but for counts, from zero, and where bytes would show as 0.0 %.
    """
    if metric.unit is Unit.COUNT or old == 0:
        return _difference(metric, new - old)
    percent = 100 * (new - old) / old
    if abs(percent) >= LEAST_PERCENT:
        return f"{percent:+.{1 if abs(percent) < ROUND_PERCENT else 0}f} %"
    return _difference(metric, new - old) if metric.unit is Unit.BYTES else "0.0 %"


def join_fitting(items: Sequence[str], width: int, between: str = ", ") -> str:
    """Join as many *items* as fit, at least one, and count the others."""
    text, texts = "", [visible(item) for item in items]
    for left in range(len(texts)):
        text = between.join(texts[: -left or None]) + f" and {left} more" * bool(left)
        if len(text) <= width:
            break
    return text


def _difference(metric: Metric, change: float) -> str:
    sign = "+" if change > 0 else "-" if change < 0 else ""
    return sign + format_value(metric, abs(change))


def _significant(value: float, digits: int) -> str:
    """Keep trailing zeros, and every digit before the point."""
    # The format would use an exponent from here on.
    if value >= 10**digits - 0.5:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")
