"""A metric in run after run as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from itertools import pairwise
from math import floor
from math import isfinite
from math import log10
from statistics import median
from typing import Final

from ...errors import ErrorId
from ...errors import UsageError
from ...judge.changepoints import level_changes
from ...model.history import Point
from ...model.history import Shift
from ...model.metric import Metric
from ...model.verdict import Outcome
from ..headline import title
from ..numbers import SIGNIFICANT_DIGITS
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import unit_of
from .contents import MOST_POINTS
from .contents import SPARK_POINTS
from .markup import Markup
from .markup import rendered
from .pictures import Ink
from .pictures import Scale
from .pictures import level
from .pictures import line_in_words
from .pictures import ticks_of
from .pictures import upright


# A metric in run after run: a line, or a sentence if it never changed.
#
# A line is drawn in whole numbers, each a value to four significant digits: the script
# of the page reads them back to name the run under the pointer.

LEAST_POWER: Final = -15
"""Ten to it is still a number that can be divided by."""

SPARK_STEPS: Final = 20
SPARK_REACH: Final = 0.1
"""Change, as a ratio, at the upper edge of every spark: all have one scale."""

SPARK_BAND: Final = 0.01
"""Change, as a ratio, that a spark shows as none if nobody says what is allowed."""

HISTORY_HEIGHT: Final = 140

LEAST_SPAN: Final = 0.04
"""Change, as a ratio, that fills a picture: a smaller one is drawn smaller."""

OUTLIERS: Final = 20
"""One run in so many may be outside of the picture, at either edge."""

LEAST_TRIMMED: Final = 8
"""Runs from which on one may be an outlier."""

MOST_CHANGES: Final = 4
"""Changes of level that are marked, the newest."""

COMMIT_TICKS: Final = 3
"""Steps between the commits that are named below a picture."""

COMMIT_TICK_CHARS: Final = 7

DATE: Final = 10
"""Characters of a time that say the day."""

COMMIT_CHARS: Final = 10
"""Characters that name a commit."""

_FAILING: Final = {outcome.value for outcome in Outcome if outcome.fails}

Moment = tuple[str, str]
"""When a run was recorded, and its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A metric's points, oldest first, and the lines it is compared with.

    ``band`` is where the stored runs lie.
    """

    metric: Metric
    points: Sequence[Point]
    lines: Mapping[Ink, float]
    band: tuple[float, float] | None = None

    @property
    def values(self) -> list[float]:
        """Its values, in the metric's unit."""
        return [point.value for point in self.points]

    @property
    def scale(self) -> Scale:
        """Show the last run and all but a few others, so that no spike flattens them."""
        values = self.values
        ordered = sorted(values)
        few = len(values) // OUTLIERS or (len(values) >= LEAST_TRIMMED)
        low = min(ordered[few], values[-1])
        high = max(ordered[-1 - few], values[-1])
        reach = max(high - low, LEAST_SPAN * abs(high))
        shown = [v for v in values if low - reach <= v <= high + reach]
        scale = Scale.around([*shown, *(self.band or ())], self.lines.values())
        middle, span = (scale.low + scale.high) / 2, scale.high - scale.low
        if span >= LEAST_SPAN * abs(middle):
            return scale
        half = LEAST_SPAN * abs(middle) / 2
        return Scale(middle - half, middle + half)

    @property
    def changes(self) -> Sequence[Shift]:
        """Where its level changed, the newest last."""
        return level_changes(self.metric, self.values)[-MOST_CHANGES:]


def newest(
    points: Sequence[Point], test: str, metric: str, most: int = MOST_POINTS
) -> Sequence[Point]:
    """Return the *points* to draw; raise ``UsageError`` if one is no number."""
    for point in points:
        if not isfinite(point.value):
            msg = (
                f"the history of {test} says that {metric} was {point.value} at "
                f"{point.recorded_at}; expected a number, remove that run from it"
            )
            raise UsageError(msg, ErrorId.GP524)
    return points[-most:]


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
    about = {
        "name": title(curve.metric.name),
        "count": len(values),
        "failed": sum(point.outcome in _FAILING for point in curve.points),
    }
    if len(set(values)) == 1:
        return rendered("always", **about, value=_shown(curve, values[0]))
    scale, changes = curve.scale, curve.changes
    grid = _Grid.of(curve.metric, max(map(abs, values)))
    ticks = ticks_of(curve.metric, scale)
    numbers = [moments[moment_of(point)] for point in curve.points]
    return rendered(
        "history",
        **about,
        ticks=upright(ticks, scale, HISTORY_HEIGHT),
        height=HISTORY_HEIGHT,
        box=grid.box(len(values) - 1, scale),
        grid=grid,
        runs=",".join(f"{first}-{last}" for first, last in _ranges(numbers)),
        drawn=_drawn(curve, grid, scale, changes, [value for value, _ in ticks]),
        commits=level(_commits(curve)),
        entries=_entries(curve, scale, changes, explained=explained),
    )


def _commits(curve: Curve) -> Iterator[tuple[float, str]]:
    """Yield a few commits with their places, or days where nobody knows the commit."""
    last = len(curve.points) - 1
    for index in sorted(
        {round(last * n / COMMIT_TICKS) for n in range(1 + COMMIT_TICKS)}
    ):
        point = curve.points[index]
        commit = (point.commit or "")[:COMMIT_TICK_CHARS]
        yield index / last, commit or point.recorded_at[:DATE]


def spark(
    points: Sequence[Point], lines: Mapping[Ink, float], most: int = SPARK_POINTS
) -> Markup:
    """Draw the course of a metric as small as a word, as changes from its baseline.

    All have one scale: the edges are 10 % less and more. Without a baseline the middle
    is the median.
    """
    values = [point.value for point in points[-most:]]
    if not values:
        return Markup()
    usual = lines.get(Ink.BASELINE, median(values))
    if all(value == usual for value in values):
        return Markup()
    allowed = lines.get(Ink.LIMIT, usual)
    tolerated = abs(allowed / usual - 1) if usual else 0.0
    half = round(SPARK_STEPS / 2 * min(1.0, (tolerated or SPARK_BAND) / SPARK_REACH), 1)
    heights = [_spark_height(value, usual) for value in values]
    return rendered(
        "spark",
        width=max(1, len(heights) - 1),
        height=SPARK_STEPS,
        band_top=f"{SPARK_STEPS / 2 - half:g}",
        band_height=f"{2 * half:g}",
        line=_line(heights),
    )


def _spark_height(value: float, usual: float) -> int:
    change = value / usual - 1 if usual else float(value > 0)
    inside = min(max(change / SPARK_REACH, -1.0), 1.0)
    return round(SPARK_STEPS / 2 * (1 - inside))


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


def _drawn(
    curve: Curve,
    grid: _Grid,
    scale: Scale,
    changes: Sequence[Shift],
    ticks: Sequence[float],
) -> Iterator[tuple[str, str]]:
    """Yield paths with negated values: in an SVG, coordinates grow downwards."""
    last = len(curve.points) - 1
    low, high = grid.at(scale.low), grid.at(scale.high)
    yield "grid", "".join(f"M0 {-grid.at(t)}H{last}" for t in ticks)
    if curve.band is not None:
        top, bottom = (-grid.at(value) for value in reversed(curve.band))
        yield "band", f"M0 {top}H{last}V{bottom}H0z"
    failing = [n for n, point in enumerate(curve.points) if point.outcome in _FAILING]
    if failing:
        bars = (f"M{a} {-low}V{-high}H{b}V{-low}" for a, b in _ranges(failing))
        yield "failed", "".join(bars)
    for ink, value in curve.lines.items():
        if scale.shows(value):
            yield ink.value, f"M0 {-grid.at(value)}H{last}"
    if changes:
        marks = (f"M{change.at - 0.5} {-low}V{-high}" for change in changes)
        yield Ink.CHANGE.value, "".join(marks)
    yield "line", _line([-grid.at(v) for v in curve.values])


def _line(heights: Sequence[int]) -> str:
    """Draw a line through *heights*, each one to the right of the one before."""
    # Relative steps: they are shorter, and there are many points in a page.
    steps = (f"1{here - before:+d}" for before, here in pairwise(heights))
    return f"M0 {heights[0]}l{' '.join(steps)}".replace("+", " ")


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of *numbers*, which ascend, wherever there is no gap."""
    # Where there is none, a number is as far from the first as its place.
    for _, alike in groupby(enumerate(numbers), lambda place: place[1] - place[0]):
        run = [number for _, number in alike]
        yield run[0], run[-1]


def _entries(
    curve: Curve, scale: Scale, changes: Sequence[Shift], *, explained: bool
) -> Iterator[tuple[str, str]]:
    low, high = format_apart(curve.metric, min(curve.values), max(curve.values))
    outside = sum(not scale.shows(value) for value in curve.values)
    beyond = f" ({outside} outside of the picture)" if outside else ""
    yield (
        Ink.LINE.value,
        f"from {low} to {high}{beyond}, last {_shown(curve, curve.values[-1])}",
    )
    if curve.band is not None:
        yield Ink.BAND.value, "between the runs of the baseline"
    for change in changes:
        yield Ink.CHANGE.value, _change(curve, change)
    for ink, value in () if explained else curve.lines.items():
        shown = scale.shows(value)
        yield ink.value, line_in_words(curve.metric, ink, value, shown=shown)


def _change(curve: Curve, change: Shift) -> str:
    """Name the commit at which the level changed, and by how much."""
    point = curve.points[change.at]
    commit = (point.commit or point.recorded_at[:DATE])[:COMMIT_CHARS]
    return f"{format_change(curve.metric, change.before, change.after)} since {commit}"


def _shown(curve: Curve, value: float) -> str:
    return format_value(curve.metric, value)
