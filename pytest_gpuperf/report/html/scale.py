"""From values to places in a picture."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


WIDTH: Final = 1000
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
        """Show all *values*, at least one, and those of *lines* that lie not too far off."""
        low, high = min(values), max(values)
        near = [v for v in lines if low / REACH <= v <= high * REACH]
        low, high = min([low, *near]), max([high, *near])
        margin = MARGIN * (high - low or abs(high) or 1.0)
        return cls(low - margin, high + margin)

    def shows(self, value: float) -> bool:
        """Whether *value* lies between the edges."""
        return self.low <= value <= self.high

    def at(self, value: float) -> int:
        """Place of *value* from the left edge; one beyond an edge stands on it."""
        inside = min(max(value, self.low), self.high)
        return round(WIDTH * ((inside - self.low) / (self.high - self.low)))
