"""Fresh runs beside the stored ones, the interval of the verdict, and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ...model.metric import Metric
from ..numbers import format_apart
from .legend import Ink
from .legend import figure
from .legend import legend
from .legend import line_in_words
from .legend import picture
from .markup import Markup
from .markup import tag
from .scale import WIDTH
from .scale import Scale
from .strips import Strip


ROW: Final = 14
"""Pixels of height that a run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one call, *stored* and *fresh*, and what they are held against."""

    metric: Metric
    stored: Sequence[Strip]
    fresh: Sequence[Strip]
    lines: Mapping[Ink, float]
    interval: tuple[float, float] | None = None

    @property
    def scale(self) -> Scale:
        """Reach from the fastest run to the slowest, and to the lines that are near."""
        strips = (*self.stored, *self.fresh)
        edges = [edge for strip in strips for edge in (strip.low, strip.high)]
        places = [strip.location for strip in strips]
        return Scale.around(
            [*places, *edges, *(self.interval or ())], self.lines.values()
        )


def samples_figure(runs: Runs) -> Markup:
    """Draw a row for the stored runs, one for each fresh run, and one for the interval."""
    if not runs.fresh and not runs.stored:
        return Markup()
    scale = runs.scale
    rows = list(_rows(runs, scale))
    height = ROW * len(rows)
    drawn = (path for _, paths in rows for path in paths)
    box = f"0 0 {WIDTH} {height}"
    svg = picture(
        *_lines(runs, scale, height),
        *drawn,
        box=box,
        height=height,
        label=_label(runs),
    )
    names = tag("ol", *(tag("li", name) for name, _ in rows), aria_hidden="true")
    edges = format_apart(runs.metric, scale.low, scale.high)
    axis = tag("p", *(tag("span", edge) for edge in edges), class_="axis")
    return figure(
        f"{runs.metric.name}: {_counted(runs)}",
        tag("div", names, svg, axis, class_="strips"),
        legend(_entries(runs, scale)),
    )


def _rows(runs: Runs, scale: Scale) -> Iterator[tuple[str, list[Markup]]]:
    """Yield the name of each row, and its paths."""
    top = 0
    if runs.stored:
        places = [scale.at(strip.location) for strip in runs.stored]
        yield "baseline", [_path("stored", _ticks(places, top + 2, ROW - 4))]
        top += ROW
    for number, strip in enumerate(runs.fresh, start=1):
        yield f"run {number}", list(_run(strip, scale, top))
        top += ROW
    if runs.interval:
        yield "95 %", [_path("interval", _bar(*runs.interval, scale, top))]


def _run(strip: Strip, scale: Scale, top: int) -> Iterator[Markup]:
    if strip.samples:
        places = [scale.at(value) for value in strip.samples]
        yield _path("sample", _ticks(places, top + 4, ROW - 8))
    else:
        yield _path("spread", _bar(strip.low, strip.high, scale, top))
    yield _path("run", _ticks([scale.at(strip.location)], top + 1, ROW - 2))


def _lines(runs: Runs, scale: Scale, height: int) -> Iterator[Markup]:
    for ink, value in runs.lines.items():
        if scale.shows(value):
            yield _path(ink.value, f"M{scale.at(value)} 0v{height}")


def _path(ink: str, drawn: str) -> Markup:
    return tag("path", class_=ink, d=drawn)


def _ticks(places: Iterable[int], top: int, length: int) -> str:
    """Draw a vertical tick at each of *places*, once where several are the same."""
    ordered = sorted(set(places))
    steps = (
        f"m{here - before}-{length}v{length}" for before, here in pairwise(ordered)
    )
    return f"M{ordered[0]} {top}v{length}{''.join(steps)}"


def _bar(low: float, high: float, scale: Scale, top: int) -> str:
    """Draw a horizontal bar in the row that begins at *top*, never of no width."""
    start = scale.at(low)
    return f"M{start} {top + ROW // 2}h{max(1, scale.at(high) - start)}"


def _entries(runs: Runs, scale: Scale) -> Iterator[tuple[Ink, str]]:
    for ink, value in runs.lines.items():
        shown = scale.shows(value)
        yield ink, line_in_words(runs.metric, ink, value, shown=shown)
    if runs.interval:
        low, high = format_apart(runs.metric, *runs.interval)
        yield Ink.INTERVAL, f"the time is between {low} and {high} (95 % confidence)"
    if runs.fresh:
        yield Ink.RUN, _meaning(runs, scale)


def _meaning(runs: Runs, scale: Scale) -> str:
    """Say what a row is made of."""
    if not any(strip.samples for strip in runs.fresh):
        return "where a run lies; the bar reaches from its first decile to its median"
    beyond = sum(v > scale.high for strip in runs.fresh for v in strip.samples)
    outside = f"; {beyond} slower ones stand at the right edge" if beyond else ""
    return f"where a run lies; each thin line is a timed round{outside}"


def _label(runs: Runs) -> str:
    """Tell those who cannot see the picture what it shows."""
    told = [f"{runs.metric.name}: {_counted(runs)}"]
    for name, strips in (("stored", runs.stored), ("fresh", runs.fresh)):
        if strips:
            places = [strip.location for strip in strips]
            low, high = format_apart(runs.metric, min(places), max(places))
            told.append(f"{name} runs from {low} to {high}")
    told += [
        line_in_words(runs.metric, ink, value, shown=True)
        for ink, value in runs.lines.items()
    ]
    return ", ".join(told)


def _counted(runs: Runs) -> str:
    counts = {"stored": len(runs.stored), "fresh": len(runs.fresh)}
    parts = [
        f"{count} {name} run{'' if count == 1 else 's'}"
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts)
