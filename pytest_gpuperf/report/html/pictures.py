"""From values to places in a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import floor, inf, log10
from typing import Final, NamedTuple

from ...model.ab import AbRun, Answer, Turn
from ...model.metrics import STEP_MS, Direction, Metric
from ...model.verdict import Outcome
from ..headline import title
from ..judged_calls import JudgedCall
from ..numbers import format_apart, format_change, metric_named, unit_of
from .contents import Markup, rendered


# Axes: their texts are elements of their own, as a stretched picture would stretch them.


MOST_TICKS: Final = 4
"""Steps between the ticks of an axis, at most."""

NICE_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


def ticks_of(metric: Metric, top: float) -> list[tuple[float, str]]:
    """Return round values from 0 to the *top* of a picture, written in one unit."""
    symbol, size = unit_of(metric, top)
    least = top / size / MOST_TICKS
    power = 10.0 ** floor(log10(least))
    step = next(nice * power for nice in NICE_STEPS if nice * power >= least)
    return [
        (step * n * size, f"{step * n:g} {symbol}")
        for n in range(floor(top / size / step + TINY) + 1)
    ]


TINY: Final = 1e-9
"""What rounding may add to a tick."""


def upright(
    ticks: Sequence[tuple[float, str]], top: float, height: int
) -> list[tuple[float, str]]:
    """Place the texts of an axis at the left of a picture of this *height*."""
    return [(round(height * (1 - v / top), 1), text) for v, text in ticks]


def level(ticks: Iterable[tuple[float, str]]) -> list[tuple[str, str, str]]:
    """Place the texts of an axis below a picture: each at a share of its width."""
    return [(percent(share), _side(share), text) for share, text in ticks]


def percent(share: float) -> str:
    """Write *share* as a place in a picture."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


EDGE: Final = 0.12
"""Share of a picture's width next to an edge, where a text would be cut in half."""


def _side(share: float) -> str:
    if share < EDGE:
        return ""
    return "end" if share > 1 - EDGE else "mid"


def parts_of_a_bar(
    sizes: Mapping[str, float], total: float
) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each part, where it begins and how wide it is."""
    starts = accumulate(sizes.values(), initial=0.0)
    for (name, size), start in zip(sizes.items(), starts, strict=False):
        if size:
            width = percent(max(THINNEST_SHARE, size / total))
            yield name, percent(start / total), width


THINNEST_SHARE: Final = 0.002
"""Width of the thinnest part, so that it can be seen."""


PICTURE_WIDTH: Final = 1000
"""Units across a picture, which is as wide on paper as there is room."""


# What changed, before and after: bars of each metric on one scale, the worst first.


class MetricChange(NamedTuple):
    """A *metric* of what is named before and after."""

    metric: str
    name: str
    before: float
    after: float

    @property
    def worse(self) -> float:
        """How many times as much, or as little of what should be much; above 1 is worse."""
        is_less = metric_named(self.metric).direction is Direction.HIGHER
        sizes = (self.before, self.after)
        small, large = reversed(sizes) if is_less else sizes
        return large / small if small else inf


MOST_ROWS: Final = 6
"""Changes of a metric that are drawn; the others are counted."""


def changes_figure(
    changes: Iterable[MetricChange], caption: str = "before and after"
) -> Iterator[Markup]:
    """Draw *changes*, a part for each metric; nothing where nothing changed."""
    by_metric: dict[str, list[MetricChange]] = {}
    for change in sorted(changes, key=lambda change: -change.worse):
        if change.before != change.after:
            by_metric.setdefault(change.metric, []).append(change)
    if by_metric:
        parts = [(title(metric), *_rows(rows)) for metric, rows in by_metric.items()]
        yield rendered("changes", caption=caption, parts=parts)


def _rows(changes: Sequence[MetricChange]) -> tuple[list[tuple[str, ...]], int]:
    """Return a row for each change, and how many more there are."""
    most = max(max(change.before, change.after) for change in changes) or 1.0
    rows = []
    for change in changes[:MOST_ROWS]:
        metric = metric_named(change.metric)
        before, after = format_apart(metric, change.before, change.after)
        ink = "worse" if change.worse > 1 else "better"
        widths = (percent(n / most) for n in (change.before, change.after))
        moved = format_change(metric, change.before, change.after)
        rows.append((change.name, ink, *widths, before, after, moved))
    return rows, len(changes) - len(rows)


TURNED: Final = frozenset({Answer.SLOWER, Answer.FASTER})
"""What is said of a time that changed."""


def changes_of_commits(found: AbRun) -> Iterator[MetricChange]:
    """Yield what differs between two versions: times, counts and bytes, if that is certain."""
    for call in found.calls:
        time = call.time
        if time and time.answer in TURNED and time.before_ms and time.after_ms:
            yield MetricChange(STEP_MS.name, call.test, time.before_ms, time.after_ms)
        for exact in call.exact:
            own = (n - exact.workspace_bytes for n in (exact.before, exact.after))
            if exact.turn is not Turn.VARIES:
                yield MetricChange(exact.metric, call.test, *own)


def changes_of_run(sections: Sequence[JudgedCall]) -> Iterator[MetricChange]:
    """Yield what failed or improved against a baseline, in several tests."""
    for section in sections:
        for verdict in section.verdict.verdicts if section.verdict else ():
            now, before = verdict.own_bytes
            is_judged = verdict.outcome.fails or verdict.outcome is Outcome.IMPROVED
            if is_judged and now is not None and before is not None:
                yield MetricChange(verdict.metric, section.key, before, now)
