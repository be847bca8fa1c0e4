"""From values to places in a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import ceil, floor, log10
from typing import Final

from ...model.metrics import Direction, Metric, Unit
from ...model.verdict import Outcome, Verdict
from ..numbers import format_value, unit_of
from .contents import Markup, rendered


# The lines of pictures, and what explains them.


class Ink(Enum):
    """How something is drawn; it differs in shape as well as in colour."""

    BASELINE = "base"
    LIMIT = "limit"
    BUDGET = "budget"
    INTERVAL = "interval"
    BAND = "band"
    PEAK = "peak"


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
    name = LINE_NAMES.get(ink, ink.value)
    higher_is_better = metric.direction is Direction.HIGHER
    bound = "at least " if higher_is_better and ink is not Ink.BASELINE else ""
    beyond = "" if shown else " (outside of the picture)"
    return f"{name} {bound}{format_value(metric, value)}{beyond}"


LINE_NAMES: Final = {
    Ink.BASELINE: "baseline",
    Ink.LIMIT: "allowed",
    Ink.BUDGET: "limit",
}


# Axes: their texts are elements of their own, as a stretched picture would stretch them.

MOST_TICKS: Final = 4
"""Steps between the ticks of an axis, at most."""

NICE_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


def ticks_of(metric: Metric, scale: Scale) -> list[tuple[float, str]]:
    """Return round values on *scale*, written in one unit."""
    symbol, size = unit_of(metric, max(abs(scale.low), abs(scale.high)))
    low, high = scale.low / size, scale.high / size
    least = (high - low) / MOST_TICKS
    # Between the smallest floats there is no room for a step.
    if not least > SMALLEST_STEP:
        return []
    power = 10.0 ** floor(log10(least))
    step = power * next(nice for nice in NICE_STEPS if nice * power >= least)
    if metric.unit is Unit.COUNT:
        step = max(1.0, step)
    digits = max(0, -floor(log10(step) + TINY))
    digits += (
        not (step * 10**digits + TINY).is_integer()
        and round(step * 10**digits, 6) % 1 > 0
    )
    first = ceil(low / step - TINY)
    return [
        (step * n * size, f"{step * n:.{digits}f} {symbol}".strip())
        for n in range(first, floor(high / step + TINY) + 1)
    ]


SMALLEST_STEP: Final = 1e-290

TINY: Final = 1e-9
"""What rounding may add to a tick."""


def upright(
    ticks: Sequence[tuple[float, str]], scale: Scale, height: int
) -> list[tuple[float, str]]:
    """Place the texts of an axis at the left of a picture of this *height*."""
    return [(round(height * (1 - scale.share(v)), 1), text) for v, text in ticks]


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


def bars(
    title: str,
    colour: Callable[[str], str],
    rows: Mapping[str, Mapping[str, float]],
    entries: Mapping[str, str],
) -> Markup:
    """Draw a bar for each of *rows* that has parts; *entries* explain them by name."""
    drawn = {name: sizes for name, sizes in rows.items() if sizes}
    total = max(sum(sizes.values()) for sizes in drawn.values()) or 1.0
    return rendered(
        "bars",
        title=title,
        rows={name: list(_parts(sizes, total)) for name, sizes in drawn.items()},
        colour=colour,
        entries=[(colour(name), text) for name, text in entries.items()],
    )


def _parts(sizes: Mapping[str, float], total: float) -> Iterator[tuple[str, str, str]]:
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
        return round(PICTURE_WIDTH * self.share(inside))

    def share(self, value: float) -> float:
        """Return how far *value* is from the lower edge to the upper one."""
        return (value - self.low) / (self.high - self.low)
