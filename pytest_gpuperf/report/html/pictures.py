"""What changed, before and after: bars of each metric on one scale, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from ...model.ab import AbRun, Answer, Turn
from ...model.metrics import STEP_MS, Direction
from ...model.verdict import Outcome
from ..headline import title
from ..judged_calls import JudgedCall
from ..numbers import format_apart, format_change, metric_named
from .contents import Markup, rendered


PICTURE_WIDTH: Final = 1000
"""Units across a picture, which is as wide on paper as there is room."""


def percent(share: float) -> str:
    """Write *share* as a place in a picture."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


class MetricChange(NamedTuple):
    """A *metric* before and after."""

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
"""Changes of a metric that have a bar; the others are counted."""


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
"""The words of a time that changed."""


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
