"""A series of numbers as a line of blocks, as high as they are large."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final


BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = "_.-=+*%#"
"""What stands for the blocks where a terminal cannot show them."""


def sparkline(values: Sequence[float], width: int, marks: str = BLOCKS) -> str:
    """Draw *values* from the smallest to the largest one, in at most *width* characters.

    Where there are more of them, each character is the median of neighbours.
    """
    shown = _gathered(values, width)
    low, high = min(shown), max(shown)
    if low == high:
        return marks[0] * len(shown)
    steps = len(marks) - 1
    return "".join(marks[round(steps * (v - low) / (high - low))] for v in shown)


def marks_for(encoding: str | None) -> str:
    """Return the blocks, or what stands for them in an *encoding* without any."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def _gathered(values: Sequence[float], width: int) -> Sequence[float]:
    count = len(values)
    if count <= width:
        return values
    ends = [round(count * place / width) for place in range(width + 1)]
    return [median(values[a:b]) for a, b in pairwise(ends)]
