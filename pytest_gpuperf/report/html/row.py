"""The line of a test that is always visible: outcome, name and main numbers."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ...model.ab import Sides
from ...model.history import Point
from ...model.metrics import PEAK_ALLOCATED
from ...model.metrics import STEP_MS
from ...model.metrics import SYNCS
from ...model.metrics import Direction
from ...model.metrics import Metric
from ...model.metrics import limited_by
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import metric_named
from ..screen.comparison import arrow
from ..screen.comparison import speedup
from ..screen.explanation import decided_by
from .contents import Section
from .history import spark
from .markup import Markup
from .markup import joined
from .markup import tag


# The verdicts of one call as a table, a row each, its reason below it.

METRICS_HEADER: Final = ("metric", "now", "baseline", "limit", "change", "outcome")

UNKNOWN_CELL: Final = "-"


def verdict_table(verdicts: Sequence[Verdict]) -> Iterator[Markup]:
    """Yield a table of what was judged, the worst first, and a sentence for what was not."""
    order = list(Outcome)
    ordered = sorted(verdicts, key=lambda verdict: order.index(verdict.outcome))
    judged = [v for v in ordered if v.outcome is not Outcome.NOT_JUDGED]
    if judged:
        head = tag("tr", *(tag("th", name) for name in METRICS_HEADER))
        rows = [row for verdict in judged for row in _rows(verdict)]
        yield tag("table", tag("thead", head), tag("tbody", *rows), class_="verdicts")
    yield from _unjudged([v for v in verdicts if v.outcome is Outcome.NOT_JUDGED])


def outcome_badge(word: str) -> Markup:
    """Return *word* in the colours of what it means."""
    return tag("b", word, class_=f"badge {word.replace(' ', '-')}")


def _rows(verdict: Verdict) -> Iterator[Markup]:
    metric = metric_named(verdict.metric)
    now, baseline, limit = _texts(metric, verdict)
    cells = (now, baseline, limit, _change(metric, verdict))
    yield tag(
        "tr",
        tag("th", verdict.metric),
        *(tag("td", cell) for cell in cells),
        tag("td", outcome_badge(verdict.outcome.value)),
    )
    why = [tag("p", reason) for reason in _reasons(verdict) if reason]
    if why:
        yield tag("tr", tag("td", *why, colspan=len(METRICS_HEADER)), class_="why")


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Say why, and which rule decided; for a pass the rule is enough."""
    rule = decided_by(verdict)
    said = bool(rule) and verdict.outcome is Outcome.PASS
    return (rule,) if said else (verdict.because, rule)


def _texts(metric: Metric, verdict: Verdict) -> list[str]:
    """Write the numbers with as many digits as tell them apart."""
    values = (verdict.now, verdict.baseline, verdict.limit)
    known = [value for value in values if value is not None]
    text = dict(zip(known, format_apart(metric, *known), strict=True))
    now, baseline, limit = (UNKNOWN_CELL if v is None else text[v] for v in values)
    at_least = metric.direction is Direction.HIGHER and verdict.limit is not None
    return [now, baseline, f"at least {limit}" if at_least else limit]


def _change(metric: Metric, verdict: Verdict) -> str:
    if verdict.baseline is None or verdict.now is None:
        return UNKNOWN_CELL
    return format_change(metric, verdict.baseline, verdict.now)


def _unjudged(verdicts: Sequence[Verdict]) -> Iterator[Markup]:
    """Name what was not judged, together where the reason is the same."""
    alike: dict[str, list[str]] = {}
    for verdict in verdicts:
        alike.setdefault(verdict.because, []).append(verdict.metric)
    for because, metrics in alike.items():
        yield tag("p", f"not judged: {', '.join(metrics)}; {because}", class_="aside")


COLUMNS: Final = ("outcome", "test", "step", "change", "memory", "syncs", "history")

MEMORY_METRICS: Final = limited_by(str(PEAK_ALLOCATED.budget))

SILENT: Final = frozenset({Outcome.PASS, Outcome.NOT_JUDGED, Outcome.NO_BASELINE})
"""Outcomes with a reason that is not worth a line."""


def header() -> Markup:
    """Name the columns, for those who see them side by side."""
    return tag("div", *(tag("span", name) for name in COLUMNS), class_="columns")


def row(section: Section, points: Sequence[Point]) -> Markup:
    """Return the line of *section*; *points* are the history of its step time."""
    reason = _reason(section)
    name = [tag("code", section.key), *([tag("small", reason)] if reason else [])]
    return tag(
        "summary",
        tag("span", _badges(section)),
        tag("span", *name, class_="name"),
        *(tag("span", number) for number in _numbers(section)),
        tag("span", spark(points)),
    )


def _badges(section: Section) -> Markup:
    """Say that a test failed, where its outcome alone does not."""
    badges = [outcome_badge(section.word)]
    says_so = section.verdict is None or section.verdict.outcome.fails
    if section.failed and not says_so:
        badges.append(outcome_badge(section.record.ending.value))
    return joined(badges)


def _reason(section: Section) -> str:
    """Say in a line why the test did not simply pass."""
    if section.verdict is None:
        return section.record.headline
    outcome = section.verdict.outcome
    worst = [v for v in section.verdict.verdicts if v.outcome is outcome]
    if worst and outcome not in SILENT:
        return f"{worst[0].metric}: {worst[0].because}"
    return section.record.headline if section.failed else ""


def _numbers(section: Section) -> tuple[str, str, str, str]:
    if section.verdict is None:
        return (UNKNOWN_CELL, UNKNOWN_CELL, UNKNOWN_CELL, UNKNOWN_CELL)
    memory, syncs = _now(section.verdict, *MEMORY_METRICS), _now(section.verdict, SYNCS)
    if section.verdict.sides is not None:
        return (*_compared(section.verdict.sides), memory, syncs)
    return (*_step(section.verdict), memory, syncs)


def _step(verdict: TestVerdict) -> tuple[str, str]:
    found = _known(verdict, STEP_MS)
    if found is None or found.now is None:
        return UNKNOWN_CELL, UNKNOWN_CELL
    now = format_value(STEP_MS, found.now)
    if found.baseline is None:
        return now, UNKNOWN_CELL
    return now, format_change(STEP_MS, found.baseline, found.now)


def _compared(sides: Sides) -> tuple[str, str]:
    """Write both times of a comparison, and the speedup for the change."""
    time = sides.time
    if time is None or time.before_ms is None or time.after_ms is None:
        return UNKNOWN_CELL, UNKNOWN_CELL
    return arrow(STEP_MS, time.before_ms, time.after_ms), speedup(time)


def _now(verdict: TestVerdict, *metrics: Metric) -> str:
    """Write the first of *metrics* that was measured."""
    known = [found for metric in metrics if (found := _known(verdict, metric))]
    if not known or known[0].now is None:
        return UNKNOWN_CELL
    return format_value(metric_named(known[0].metric), known[0].now)


def _known(verdict: TestVerdict, metric: Metric) -> Verdict | None:
    """Return what was judged of *metric* with a number, by its baseline if it was."""
    known = [
        v for v in verdict.verdicts if v.metric == metric.name and v.now is not None
    ]
    return min(known, key=lambda v: v.baseline is None, default=None)
