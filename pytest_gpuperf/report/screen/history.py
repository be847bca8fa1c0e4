"""The history of tests: one in a table, several a line each, and their changes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ...model.history import Course
from ...model.history import LeftOut
from ...model.history import LevelChange
from ...model.history import Point
from ...model.history import Series
from ...model.units import counted
from ...model.verdict import Outcome
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import metric_named
from ..table import align
from ..table import sparkline
from ..wrapping import text_width
from ..wrapping import wrapped


HISTORY_HEADER: Final = ("when (UTC)", "commit", "value", "change", "outcome")
OVERVIEW: Final = ("now", "change", "runs", "course", "metric", "test")
CHANGES: Final = ("since", "commits", "old -> new", "change")
ALL_LEFT: Final = frozenset(range(len(CHANGES)))
SHORT_COMMIT_CHARS: Final = 7
"""Characters that name a commit."""

OVERVIEW_WIDTH: Final = 20
DAY: Final = 10
"""Characters of a moment that name its day."""

NAMED: Final = 3
"""Files that are named where several are left out."""


def course_lines(course: Course, marks: str, listed: int) -> tuple[str, ...]:
    """Draw one series, and show its newest runs, as many as are *listed*."""
    series, points = course.series, course.points
    metric = metric_named(series.metric)
    values = [point.value for point in points]
    low, high = format_value(metric, min(values)), format_value(metric, max(values))
    span = f"{low} to {high}" if low != high else f"always {low}"
    rows = [HISTORY_HEADER, *list(_rows(series, points))[-listed:]]
    hidden = max(0, len(points) - listed)
    return (
        series.test,
        f"{series.metric} on {series.hardware}, {len(points)} of {counted(course.count, 'run')}",
        f"{span}  {sparkline(values, text_width() - len(span) - 2, marks)}",
        *align(rows, left=frozenset({0, 1})),
        *((f"and {counted(hidden, 'run')} before them, with -v",) if hidden else ()),
    )


def overview_lines(courses: Sequence[Course], marks: str) -> Iterator[str]:
    """Show each series in a line, hardware by hardware."""
    for hardware in dict.fromkeys(course.series.hardware for course in courses):
        here = [course for course in courses if course.series.hardware == hardware]
        metrics = {course.series.metric for course in here}
        cells = [OVERVIEW, *(_overview_cells(course, marks) for course in here)]
        if len(metrics) == 1:
            yield f"{hardware}, {metrics.pop()}:"
            cells = [(*row[:4], row[5]) for row in cells]
        else:
            yield f"{hardware}:"
        yield from align(cells, left=frozenset({3, 4}))


def change_lines(
    changes: Sequence[LevelChange], *, looked_at: int, runs: int, too_short: int
) -> Iterator[str]:
    """Show changes of level in the given order, or say that there are none.

    *looked_at* series were searched, *too_short* ones of them have too few runs to tell.
    """
    looked = f"{looked_at} series, the newest {runs} runs of each"
    if too_short:
        looked += f"; {too_short} of them too short to tell"
    if not changes:
        yield from wrapped(f"gpuperf: no change of level in {looked}")
        return
    for hardware in dict.fromkeys(change.series.hardware for change in changes):
        here = [change for change in changes if change.series.hardware == hardware]
        yield f"{hardware}:"
        header, *rows = align([CHANGES, *map(_change_cells, here)], left=ALL_LEFT)
        yield header
        for change, row in zip(here, rows, strict=True):
            yield row
            yield f"    {change.series.metric} of {change.series.test}"
            yield from wrapped(_software(change), first="    ", rest="    ")
    count = f"{len(changes)} change{'s' if len(changes) > 1 else ''}"
    yield from wrapped(f"gpuperf: {count} of level in {looked}")


def left_out_lines(files: Sequence[LeftOut]) -> tuple[str, ...]:
    """Name files that were left out, some of each reason."""
    reasons = dict.fromkeys(file.why for file in files)
    return tuple(
        line
        for why in reasons
        for line in wrapped(_left_out([f.name for f in files if f.why == why], why))
    )


def _left_out(names: Sequence[str], why: str) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"left out: {', '.join(names[:NAMED])}{more}: {why}"


def _rows(series: Series, points: Sequence[Point]) -> Iterator[tuple[str, ...]]:
    metric = metric_named(series.metric)
    before: Point | None = None
    for point in points:
        yield (
            _when(point),
            _commit(point),
            format_value(metric, point.value),
            format_change(metric, before.value, point.value) if before else "",
            _outcome(point.outcome),
        )
        before = point


def _overview_cells(course: Course, marks: str) -> tuple[str, ...]:
    metric = metric_named(course.series.metric)
    values = [point.value for point in course.points]
    return (
        format_value(metric, values[-1]),
        format_change(metric, values[0], values[-1]),
        str(course.count),
        sparkline(values, OVERVIEW_WIDTH, marks),
        course.series.metric,
        course.series.test,
    )


def _change_cells(change: LevelChange) -> tuple[str, ...]:
    metric = metric_named(change.series.metric)
    before, after = change.shift.before, change.shift.after
    return (
        _when(change.first)[:DAY],
        f"{_commit(change.last)}..{_commit(change.first)}",
        " -> ".join(format_apart(metric, before, after)),
        format_change(metric, before, after),
    )


def _software(change: LevelChange) -> str:
    """Say which versions moved between the two runs; nothing if none did."""
    old, new = change.last.versions, change.first.versions
    moved = [
        f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    return f"with it changed: {', '.join(moved)}" if moved else ""


def _when(point: Point) -> str:
    return point.recorded_at[:16].replace("T", " ")


def _commit(point: Point) -> str:
    """Name the commit; what was changed since it was checked out is a plus."""
    return f"{(point.commit or '?')[:SHORT_COMMIT_CHARS]}{'+' if point.dirty else ''}"


def _outcome(outcome: str | None) -> str:
    known = {member.value: member for member in Outcome}
    if outcome in known and known[outcome].fails:
        return known[outcome].value.upper()
    return outcome or ""
