"""Tables for a terminal: columns under each other, and numbers as a line of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from ..visible import visible


BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = "_.-=+*%#"
"""Replaces the blocks if a terminal cannot show them."""


def sparkline(values: Sequence[float], width: int, marks: str = BLOCKS) -> str:
    """Draw *values* from the smallest to the largest one, in at most *width* characters.

    Where there are more of them, each character is the median of neighbours.
    """
    shown = _gathered(values, width)
    low, high = min(shown), max(shown)
    # A flat series has no span to divide by.
    if low == high:
        return marks[0] * len(shown)
    steps = len(marks) - 1
    return "".join(marks[round(steps * (v - low) / (high - low))] for v in shown)


def marks_for(encoding: str | None) -> str:
    """Return the blocks, or their replacements for an *encoding* without them."""
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
    # The median, so that one outlier does not decide the height of its neighbours.
    return [median(values[a:b]) for a, b in pairwise(ends)]


# Columns of text.


def align(rows: Sequence[Sequence[str]], left: frozenset[int]) -> tuple[str, ...]:
    """Pad cells to their column's width: flush right but for the *left* columns.

    The last column is never padded. All *rows* have the same number of cells. Their
    texts may be names, so invisible characters, such as the end of a line, are made
    visible.
    """
    rows = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def pad(column: int, cell: str) -> str:
        if column == len(widths) - 1:
            return cell
        return (
            cell.ljust(widths[column]) if column in left else cell.rjust(widths[column])
        )

    return tuple("  ".join(pad(*cell) for cell in enumerate(row)) for row in rows)
