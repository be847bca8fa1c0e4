"""Columns of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stored value, by metric name, before and after; ``None`` where there is none.

    ``anchor`` is the value that its drift is counted from.
    """

    test: str
    metric: str
    old: float | None
    new: float | None
    anchor: float | None = None

    @property
    def has_drifted(self) -> bool:
        """Whether there is a way from the anchor to the new value."""
        return None not in {self.anchor, self.new} and self.anchor != self.new


def align(rows: Sequence[Sequence[str]], left: frozenset[int]) -> tuple[str, ...]:
    """Pad cells to their column's width: flush right but for the *left* columns.

    The last column is never padded. All *rows* have as many cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def pad(column: int, cell: str) -> str:
        if column == len(widths) - 1:
            return cell
        return (
            cell.ljust(widths[column]) if column in left else cell.rjust(widths[column])
        )

    return tuple("  ".join(pad(*cell) for cell in enumerate(row)) for row in rows)
