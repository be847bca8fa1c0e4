"""New and stored runs as pictures, with the interval of the verdict and its limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

from ...model.baseline import Entry
from ...model.environment import DeviceKind
from ...model.measurement import location
from ...model.metrics import Metric, MetricKind
from ...model.verdict import Verdict
from ..headline import title
from ..numbers import format_apart, metric_named
from .contents import Markup, rendered
from .pictures import PICTURE_WIDTH, Ink, Scale, level, line_in_words, ticks_of


# The runs of one time, each with its summary.

MOST_RUNS: Final = 20
"""Runs of one test that are drawn, the newest."""


Strip = tuple[float, float, float]
"""Where one run lies, and the bounds that show most of it."""


def strips_of(metric: str, entry: Entry | None, kind: DeviceKind) -> list[Strip]:
    """Return the runs of one call that *entry* keeps.

    None of a count or size, which is the same in each.
    """
    if metric_named(metric).kind is MetricKind.EXACT:
        return []
    runs = entry.runs if entry else ()
    kept = [run.times[metric] for run in runs if metric in run.times]
    return [
        (location(metric_named(metric), times, kind), times.q10, times.q50)
        for times in kept
    ][-MOST_RUNS:]


def interval_of(judged: Sequence[Verdict]) -> tuple[float, float] | None:
    """Return the bounds of the first verdict that has any, in the metric's unit."""
    for verdict in judged:
        reference = verdict.limit if verdict.baseline is None else verdict.baseline
        if verdict.evidence is not None and reference is not None:
            evidence = verdict.evidence
            return reference * (1 + evidence.low), reference * (1 + evidence.high)
    return None


ROW: Final = 14
"""Pixels of height that a run has."""


Path = tuple[str, str]
"""What something is drawn in, and the path of an SVG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The *stored* and *fresh* runs of one call, and the lines next to them."""

    metric: Metric
    stored: Sequence[Strip]
    fresh: Sequence[Strip]
    lines: Mapping[Ink, float]
    interval: tuple[float, float] | None = None

    @property
    def scale(self) -> Scale:
        """Reach from the fastest run to the slowest, and to the lines that are near."""
        reached = chain(*self.stored, *self.fresh, self.interval or ())
        return Scale.around([*reached], self.lines.values())

    @property
    def band(self) -> tuple[float, float] | None:
        """Where the stored runs lie, if not all in one place."""
        places = [place for place, _, _ in self.stored]
        return (min(places), max(places)) if len(set(places)) > 1 else None


def samples_figure(runs: Runs) -> Markup:
    """Draw a row for the stored runs, one for each fresh run, and one for the interval."""
    if not runs.fresh and not runs.stored:
        return Markup()
    scale = runs.scale
    names, drawn = zip(*_rows(runs, scale), strict=True)
    height = ROW * len(names)
    return rendered(
        "samples",
        title=title(runs.metric.name),
        stored=len(runs.stored),
        fresh=len(runs.fresh),
        names=names,
        width=PICTURE_WIDTH,
        height=height,
        label=_label(runs),
        drawn=(
            *_band(runs, scale, height),
            *_lines(runs, scale, height),
            *_together(chain.from_iterable(drawn)),
        ),
        ticks=level((scale.share(v), text) for v, text in ticks_of(runs.metric, scale)),
        entries=_entries(runs, scale),
    )


def _rows(runs: Runs, scale: Scale) -> Iterator[tuple[str, list[Path]]]:
    """Yield the name of each row, and what is drawn in it."""
    top = 0
    if runs.stored:
        places = [scale.at(place) for place, _, _ in runs.stored]
        yield "baseline", [("stored", _ticks(places, top + 2, ROW - 4))]
        top += ROW
    for number, strip in enumerate(runs.fresh, start=1):
        yield f"run {number}", list(_run(strip, scale, top))
        top += ROW
    if runs.interval:
        yield "95 %", [("interval", _bar(*runs.interval, scale, top))]


def _run(strip: Strip, scale: Scale, top: int) -> Iterator[Path]:
    place, low, high = strip
    yield "spread", _bar(low, high, scale, top)
    yield "run", _ticks([scale.at(place)], top + 1, ROW - 2)


def _together(paths: Iterable[Path]) -> Iterable[Path]:
    """Return one path for all that is drawn in the same ink."""
    drawn: dict[str, str] = {}
    for ink, path in paths:
        # One element per ink, not per run, keeps a page of thousands of tests small.
        drawn[ink] = drawn.get(ink, "") + path
    return drawn.items()


def _lines(runs: Runs, scale: Scale, height: int) -> Iterator[Path]:
    for ink, value in runs.lines.items():
        if scale.shows(value):
            yield ink.value, f"M{scale.at(value)} 0v{height}"


def _band(runs: Runs, scale: Scale, height: int) -> Iterator[Path]:
    """Yield the range of the stored runs, behind all rows."""
    left, right = map(scale.at, runs.band or (0.0, 0.0))
    if left < right:
        yield Ink.BAND.value, f"M{left} 0V{height}H{right}V0z"


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


def _entries(runs: Runs, scale: Scale) -> Iterator[tuple[str, str]]:
    for ink, value in runs.lines.items():
        shown = scale.shows(value)
        yield ink.value, line_in_words(runs.metric, ink, value, shown=shown)
    if runs.interval:
        low, high = format_apart(runs.metric, *runs.interval)
        yield Ink.INTERVAL.value, f"{low} to {high} (95 %)"


def _label(runs: Runs) -> str:
    """Describe what only the picture shows, for screen readers."""
    ranges = []
    for name, strips in (("baseline", runs.stored), ("this run", runs.fresh)):
        if strips:
            places = [place for place, _, _ in strips]
            low, high = format_apart(runs.metric, min(places), max(places))
            ranges.append(f"{name} from {low} to {high}")
    return ", ".join(ranges)
