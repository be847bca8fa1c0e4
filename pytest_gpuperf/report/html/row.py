"""The line of a test that is always there: its outcome, its name, its main numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...model.comparison import Sides
from ...model.history import Point
from ...model.memory_metric import PEAK_ALLOCATED
from ...model.metric import STEP_MS
from ...model.metric import SYNCS
from ...model.metric import Metric
from ...model.metric import limited_by
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ..comparison import arrow
from ..comparison import speedup
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import metric_named
from .contents import Section
from .history import spark
from .markup import Markup
from .markup import joined
from .markup import tag
from .verdicts import UNKNOWN
from .verdicts import outcome_badge


COLUMNS: Final = ("outcome", "test", "step", "change", "memory", "syncs", "history")

MEMORY: Final = limited_by(str(PEAK_ALLOCATED.budget))

SILENT: Final = frozenset({Outcome.PASS, Outcome.NOT_JUDGED, Outcome.NO_BASELINE})
"""Outcomes whose reason is worth no line."""


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
        return (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    memory, syncs = _now(section.verdict, *MEMORY), _now(section.verdict, SYNCS)
    if section.verdict.sides is not None:
        return (*_compared(section.verdict.sides), memory, syncs)
    return (*_step(section.verdict), memory, syncs)


def _step(verdict: TestVerdict) -> tuple[str, str]:
    found = _known(verdict, STEP_MS)
    if found is None or found.now is None:
        return UNKNOWN, UNKNOWN
    now = format_value(STEP_MS, found.now)
    if found.baseline is None:
        return now, UNKNOWN
    return now, format_change(STEP_MS, found.baseline, found.now)


def _compared(sides: Sides) -> tuple[str, str]:
    """Write both times of a comparison, and the speedup for the change."""
    time = sides.time
    if time is None or time.before_ms is None or time.after_ms is None:
        return UNKNOWN, UNKNOWN
    return arrow(STEP_MS, time.before_ms, time.after_ms), speedup(time)


def _now(verdict: TestVerdict, *metrics: Metric) -> str:
    """Write the first of *metrics* that was measured."""
    known = [found for metric in metrics if (found := _known(verdict, metric))]
    if not known or known[0].now is None:
        return UNKNOWN
    return format_value(metric_named(known[0].metric), known[0].now)


def _known(verdict: TestVerdict, metric: Metric) -> Verdict | None:
    """Return what was judged of *metric* with a number, by its baseline if it was."""
    known = [
        v for v in verdict.verdicts if v.metric == metric.name and v.now is not None
    ]
    return min(known, key=lambda v: v.baseline is None, default=None)
