"""Tables for a terminal: columns under each other."""

from __future__ import annotations

from collections.abc import Sequence

from ..visible import visible


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
