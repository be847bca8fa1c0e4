"""A metric in run after run as a picture; how the baseline's environment differs."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from math import isfinite
from math import log10
from typing import Final

from ...errors import ErrorId
from ...errors import UsageError
from ...model.baseline import Entry
from ...model.history import Point
from ...model.metrics import Metric
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ..numbers import SIGNIFICANT_DIGITS
from ..numbers import format_apart
from ..numbers import format_value
from ..numbers import unit_of
from .markup import Markup
from .markup import tag
from .pictures import Ink
from .pictures import Scale
from .pictures import figure
from .pictures import legend
from .pictures import line_in_words
from .pictures import picture


# A metric in run after run: a line, or a sentence if it never changed.
#
# A line is drawn in whole numbers, each a value to four significant digits: the script
# of the page reads them back to name the run under the pointer.

MOST_POINTS: Final = 200
"""Points that are drawn of a metric, the newest."""

LEAST_POWER: Final = -15
"""Ten to it is still a number that can be divided by."""

SPARK_POINTS: Final = 25
SPARK_STEPS: Final = 20
SPARK_SPAN: Final = 0.1
"""Change, as a ratio, below which a spark is not as high as it could be: it is noise."""

HISTORY_HEIGHT: Final = 90

DATE: Final = 10
"""Characters of a time that say the day."""

COMMIT_CHARS: Final = 10
"""Characters that name a commit."""

_FAILING: Final = {outcome.value for outcome in Outcome if outcome.fails}

Moment = tuple[str, str]
"""When a run was recorded, and its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A metric's points, oldest first, and the lines it is compared with."""

    metric: Metric
    points: Sequence[Point]
    lines: Mapping[Ink, float]

    @property
    def values(self) -> list[float]:
        """Its values, in the metric's unit."""
        return [point.value for point in self.points]


def newest(points: Sequence[Point], test: str, metric: str) -> Sequence[Point]:
    """Return the *points* to draw; raise ``UsageError`` if one is no number."""
    for point in points:
        if not isfinite(point.value):
            msg = (
                f"the history of {test} says that {metric} was {point.value} at "
                f"{point.recorded_at}; expected a number, remove that run from it"
            )
            raise UsageError(msg, ErrorId.GP524)
    return points[-MOST_POINTS:]


def moment_of(point: Point) -> Moment:
    """Return what names the run of *point*."""
    return point.recorded_at, (point.commit or "")[:COMMIT_CHARS]


def history_figure(
    curve: Curve, moments: Mapping[Moment, int], *, explained: bool = False
) -> Markup:
    """Draw a *curve* of at least two points; *moments* number the runs of the page.

    Its lines are explained in words, unless they were *explained* just above.
    """
    values = curve.values
    if len(set(values)) == 1:
        always = f"{_title(curve)}: always {_shown(curve, values[0])}"
        return tag("p", always, class_="aside")
    grid = _Grid.of(curve.metric, max(map(abs, values)))
    scale = Scale.around(values, curve.lines.values())
    numbers = [moments[moment_of(point)] for point in curve.points]
    svg = picture(
        *_drawn(curve, grid, scale),
        box=grid.box(len(values) - 1, scale),
        height=HISTORY_HEIGHT,
        class_="history",
        data_unit=grid.symbol,
        data_power=grid.power,
        data_runs=",".join(f"{first}-{last}" for first, last in _ranges(numbers)),
    )
    days = tag("p", *(tag("span", day) for day in _days(curve)), class_="axis")
    return figure(
        _title(curve), svg, days, legend(_entries(curve, scale, explained=explained))
    )


def spark(points: Sequence[Point]) -> Markup:
    """Draw the course of a metric as small as a word, to look over many tests."""
    values = [point.value for point in points[-SPARK_POINTS:]]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high:
        return Markup()
    # Otherwise a change of 0.1 % would look like one of 50 %.
    span = max(high - low, SPARK_SPAN * abs(high))
    steps = [round(SPARK_STEPS * (high - value) / span) for value in values]
    return tag(
        "svg",
        tag("path", d=_line(steps)),
        viewBox=f"0 0 {len(steps) - 1} {SPARK_STEPS}",
        preserveAspectRatio="none",
        class_="spark",
        aria_hidden="true",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Scales values to whole numbers, of which the largest has four digits."""

    symbol: str
    size: float
    power: int

    @classmethod
    def of(cls, metric: Metric, largest: float) -> _Grid:
        symbol, size = unit_of(metric, largest)
        power = max(floor(log10(largest / size)) + 1 - SIGNIFICANT_DIGITS, LEAST_POWER)
        return cls(symbol=symbol, size=size, power=power)

    def at(self, value: float) -> int:
        return round(value / self.size / 10.0**self.power)

    def box(self, width: int, scale: Scale) -> str:
        low, high = self.at(scale.low), self.at(scale.high)
        return f"0 {-high} {width} {max(1, high - low)}"


def _drawn(curve: Curve, grid: _Grid, scale: Scale) -> Iterator[Markup]:
    """Yield paths with negated values: in an SVG, coordinates grow downwards."""
    last = len(curve.points) - 1
    failing = [n for n, point in enumerate(curve.points) if point.outcome in _FAILING]
    if failing:
        low, high = grid.at(scale.low), grid.at(scale.high)
        bars = (f"M{a} {-low}V{-high}H{b}V{-low}" for a, b in _ranges(failing))
        yield tag("path", class_="failed", d="".join(bars))
    for ink, value in curve.lines.items():
        if scale.shows(value):
            yield tag("path", class_=ink.value, d=f"M0 {-grid.at(value)}H{last}")
    yield tag("path", class_="line", d=_line([-grid.at(v) for v in curve.values]))


def _line(heights: Sequence[int]) -> str:
    """Draw a line through *heights*, each one to the right of the one before."""
    # Relative steps: they are shorter, and there are many points in a page.
    steps = (f"1{here - before:+d}" for before, here in pairwise(heights))
    return f"M0 {heights[0]}l{' '.join(steps)}".replace("+", " ")


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of *numbers*, which ascend, wherever there is no gap."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _title(curve: Curve) -> str:
    failed = sum(point.outcome in _FAILING for point in curve.points)
    failures = f", {failed} of them failed" if failed else ""
    return f"{curve.metric.name} of {len(curve.points)} runs{failures}"


def _days(curve: Curve) -> tuple[str, str]:
    return curve.points[0].recorded_at[:DATE], curve.points[-1].recorded_at[:DATE]


def _entries(
    curve: Curve, scale: Scale, *, explained: bool
) -> Iterator[tuple[Ink, str]]:
    low, high = format_apart(curve.metric, min(curve.values), max(curve.values))
    yield Ink.LINE, f"from {low} to {high}, last {_shown(curve, curve.values[-1])}"
    for ink, value in () if explained else curve.lines.items():
        shown = scale.shows(value)
        yield ink, line_in_words(curve.metric, ink, value, shown=shown)


def _shown(curve: Curve, value: float) -> str:
    return format_value(curve.metric, value)


SOFTWARE_HEADER: Final = ("software", "baseline", "now")
ABSENT_VERSION: Final = "absent"


def environment_table(verdict: TestVerdict, stored: Entry | None) -> Iterator[Markup]:
    """Yield what changed since the baseline, or that nothing did that is recorded."""
    if all(v.baseline is None for v in verdict.verdicts):
        return
    if verdict.changed:
        yield tag("h3", "Environment")
        yield _table(verdict.changed)
    else:
        yield tag("p", "Nothing recorded has changed since the baseline.")
    if stored is not None and stored.origin is not None:
        dirty = ", with changes" if stored.origin.dirty else ""
        commit = stored.origin.commit[:COMMIT_CHARS]
        yield tag("p", "The baseline is that of ", tag("code", commit), dirty)


def _table(changed: Mapping[str, tuple[str, str]]) -> Markup:
    head = tag("tr", *(tag("th", name) for name in SOFTWARE_HEADER))
    rows = [
        tag(
            "tr",
            tag("th", name),
            *(tag("td", version or ABSENT_VERSION) for version in both),
        )
        for name, both in sorted(changed.items())
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("div", table, class_="wide")
