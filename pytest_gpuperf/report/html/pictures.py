"""From values to places in a picture."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...model.metrics import Direction
from ...model.metrics import Metric
from ...model.verdict import Outcome
from ...model.verdict import Verdict
from ..numbers import format_value
from .markup import Markup
from .markup import tag


# Pictures with captions that explain their lines.


class Ink(Enum):
    """How something is drawn; it differs in shape as well as in colour."""

    BASELINE = "base"
    LIMIT = "limit"
    BUDGET = "budget"
    INTERVAL = "interval"
    LINE = "line"


def lines_of(judged: Sequence[Verdict]) -> dict[Ink, float]:
    """Return the lines that the verdicts compare one metric with."""
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

    *label* describes it; without one screen readers skip it, as the text beside it says
    the same.
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


PICTURE_WIDTH: Final = 1000
"""Units across a picture, which is as wide on paper as there is room."""

MARGIN: Final = 0.05

REACH: Final = 2.0
"""What is so many times above or below all that is drawn is left out of the picture."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The values between the two edges of a picture."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], lines: Iterable[float] = ()) -> Scale:
        """Show all *values*, at least one, and those of *lines* that are near."""
        low, high = min(values), max(values)
        near = [v for v in lines if low / REACH <= v <= high * REACH]
        low, high = min([low, *near]), max([high, *near])
        # A scale of no width could not place anything.
        margin = MARGIN * (high - low or abs(high) or 1.0)
        return cls(low - margin, high + margin)

    def shows(self, value: float) -> bool:
        """Whether *value* lies between the edges."""
        return self.low <= value <= self.high

    def at(self, value: float) -> int:
        """Return the place of *value* from the left, at an edge if it is beyond."""
        inside = min(max(value, self.low), self.high)
        return round(PICTURE_WIDTH * ((inside - self.low) / (self.high - self.low)))
