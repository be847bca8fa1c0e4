"""Fresh runs beside the stored ones, the interval of the verdict, and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
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


Path = tuple[str, str]
"""What something is drawn in, and the path of an SVG."""


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
    names, paths = zip(*_rows(runs, scale), strict=True)
    height = ROW * len(names)
    svg = picture(
        *_lines(runs, scale, height),
        *_together(chain.from_iterable(paths)),
        box=f"0 0 {WIDTH} {height}",
        height=height,
        label=_label(runs),
    )
    rows = tag("pre", "\n".join(names), aria_hidden="true")
    edges = format_apart(runs.metric, scale.low, scale.high)
    axis = tag("p", *(tag("span", edge) for edge in edges), class_="axis")
    return figure(
        f"{runs.metric.name}: {_counted(runs)}",
        tag("div", rows, svg, axis, class_="strips"),
        legend(_entries(runs, scale)),
        _beyond(runs, scale),
    )


def _rows(runs: Runs, scale: Scale) -> Iterator[tuple[str, list[Path]]]:
    """Yield the name of each row, and what is drawn in it."""
    top = 0
    if runs.stored:
        places = [scale.at(strip.location) for strip in runs.stored]
        yield "baseline", [("stored", _ticks(places, top + 2, ROW - 4))]
        top += ROW
    for number, strip in enumerate(runs.fresh, start=1):
        yield f"run {number}", list(_run(strip, scale, top))
        top += ROW
    if runs.interval:
        yield "95 %", [("interval", _bar(*runs.interval, scale, top))]


def _run(strip: Strip, scale: Scale, top: int) -> Iterator[Path]:
    if strip.samples:
        places = [scale.at(value) for value in strip.samples]
        yield "sample", _ticks(places, top + 4, ROW - 8)
    else:
        yield "spread", _bar(strip.low, strip.high, scale, top)
    yield "run", _ticks([scale.at(strip.location)], top + 1, ROW - 2)


def _together(paths: Iterable[Path]) -> Iterator[Markup]:
    """Yield one element for all that is drawn in the same ink."""
    drawn: dict[str, str] = {}
    for ink, path in paths:
        drawn[ink] = drawn.get(ink, "") + path
    for ink, path in drawn.items():
        yield tag("path", class_=ink, d=path)


def _lines(runs: Runs, scale: Scale, height: int) -> Iterator[Markup]:
    for ink, value in runs.lines.items():
        if scale.shows(value):
            yield tag("path", class_=ink.value, d=f"M{scale.at(value)} 0v{height}")


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
        yield Ink.INTERVAL, f"{low} to {high} (95 %)"


def _beyond(runs: Runs, scale: Scale) -> Markup:
    """Count the samples that would have squeezed all others."""
    count = sum(v > scale.high for strip in runs.fresh for v in strip.samples)
    if not count:
        return Markup()
    text = f"slower than the picture is wide, at its right edge: {count}"
    return tag("p", text, class_="aside")


def _label(runs: Runs) -> str:
    """Tell those who cannot see the picture what stands nowhere beside it."""
    told = []
    for name, strips in (("stored", runs.stored), ("fresh", runs.fresh)):
        if strips:
            places = [strip.location for strip in strips]
            low, high = format_apart(runs.metric, min(places), max(places))
            told.append(f"{name} runs from {low} to {high}")
    return ", ".join(told)


def _counted(runs: Runs) -> str:
    counts = {"stored": len(runs.stored), "fresh": len(runs.fresh)}
    parts = [
        f"{count} {name} run{'' if count == 1 else 's'}"
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts)
