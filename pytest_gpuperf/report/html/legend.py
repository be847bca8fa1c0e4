"""Pictures with their captions: what their lines mean stands below them, in words."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from enum import Enum

from ...model.metric import Direction
from ...model.metric import Metric
from ...model.verdict import Outcome
from ...model.verdict import Verdict
from ..numbers import format_value
from .markup import Markup
from .markup import tag


class Ink(Enum):
    """How something is drawn; it differs in shape as well as in colour."""

    BASELINE = "base"
    LIMIT = "limit"
    BUDGET = "budget"
    INTERVAL = "interval"
    LINE = "line"


def lines_of(judged: Sequence[Verdict]) -> dict[Ink, float]:
    """Return what the verdicts on one metric hold it against."""
    found: dict[Ink, float] = {}
    for verdict in judged:
        if verdict.baseline is not None:
            found.setdefault(Ink.BASELINE, verdict.baseline)
        if verdict.limit is not None:
            stored = verdict.baseline is not None
            is_limit = stored and verdict.outcome is not Outcome.OVER_BUDGET
            found.setdefault(Ink.LIMIT if is_limit else Ink.BUDGET, verdict.limit)
    return found


def line_in_words(metric: Metric, ink: Ink, value: float, *, shown: bool) -> str:
    """Write ``baseline 10.00 ms``, and whether it is too far off to be seen."""
    name = "baseline" if ink is Ink.BASELINE else ink.value
    higher_is_better = metric.direction is Direction.HIGHER
    bound = "at least " if higher_is_better and ink is not Ink.BASELINE else ""
    beyond = "" if shown else " (outside of the picture)"
    return f"{name} {bound}{format_value(metric, value)}{beyond}"


def legend(entries: Iterable[tuple[Ink, str]]) -> Markup:
    """Explain each ink that was used."""
    items = (
        tag("li", tag("i", class_=f"ink {ink.value}"), text) for ink, text in entries
    )
    return tag("ul", *items, class_="legend")


def picture(
    *drawn: Markup,
    box: str,
    height: int,
    label: str | None = None,
    **more: str | float | None,
) -> Markup:
    """Return an SVG that is stretched to the width there is.

    *label* tells what it shows; without one it is passed over, as what it shows is told
    beside it.
    """
    return tag(
        "svg",
        *drawn,
        viewBox=box,
        height=height,
        preserveAspectRatio="none",
        role="img" if label else None,
        aria_label=label,
        aria_hidden=None if label else "true",
        **more,
    )


def figure(title: str, *content: Markup) -> Markup:
    """Return *content* under its *title*."""
    return tag("figure", tag("figcaption", title), *content)
