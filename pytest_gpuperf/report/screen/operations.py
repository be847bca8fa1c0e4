"""Lines that run other operations than before, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from ...model.finding import CALLED
from ...model.metric import counted
from ...model.metrics import H2D_BYTES
from ...model.operations import LineChange
from ..numbers import format_value, join_fitting
from ..wrapping import labelled


LINES_OF_BLAME: Final = 3
"""Lines that a terminal shows of a test."""

LINES_OF_PAGE: Final = 12
"""The same of a page."""

OPS_WIDTH: Final = 60
"""Columns for the names of operations."""


def blame_lines(changes: Sequence[LineChange]) -> tuple[str, ...]:
    """Name the first of *changes*, which a failure or a comparison shows, and count all."""
    labels = chain(["ops"], *[[""]] * LINES_OF_BLAME)
    shown = blame_texts(changes, LINES_OF_BLAME)
    return tuple(chain.from_iterable(map(labelled, labels, shown)))


def blame_texts(changes: Sequence[LineChange], most: int = LINES_OF_PAGE) -> list[str]:
    """Name *most* of *changes* at most, a sentence each, and count the others."""
    shown = [*map(_in_words, changes[:most])]
    left = len(changes) - len(shown)
    if left:
        shown[-1] += f"; and {counted(left, 'more line')}"
    return shown


LOOPED: Final = 16
"""Times as often as before, from which on a line that runs an operation is a loop."""


def loop_lines(changes: Sequence[LineChange]) -> tuple[str, ...]:
    """Say what to do about the operation that a line has begun to run in a loop."""
    grown = [
        (after - before, op, after)
        for change in changes
        for op, (before, after) in change.ops.items()
        if op != CALLED and after >= LOOPED * max(1, before)
    ]
    if not grown:
        return ()
    _, op, times = max(grown)
    text = (
        f"run {op} once on the whole batch, with a dim or torch.vmap, in place of "
        f"{times} times in a loop"
    )
    return labelled("fix", text)


def _in_words(change: LineChange) -> str:
    """Say what a line runs more or less, in which module and where."""
    if CALLED in change.ops:
        more = counted(change.added, "operation")
        return f"new call at {_place(change)}: +{more}"
    amount = _amount(change)
    of_module = f"{change.module}: " if change.module else ""
    ops = join_fitting([*_ops(change)], OPS_WIDTH)
    return f"{of_module}{amount}, {ops} at {_place(change)}"


def _amount(change: LineChange) -> str:
    if change.added:
        word = "operation" if abs(change.added) == 1 else "operations"
        return f"{change.added:+} {word}"
    sign = "-" if change.added_bytes < 0 else "+"
    size = format_value(H2D_BYTES, abs(change.added_bytes))
    return f"{sign}{size} of results" if change.added_bytes else "other operations"


def _ops(change: LineChange) -> Iterator[str]:
    """Name new operations, then what runs in another number, most first."""
    order = sorted(
        change.ops.items(), key=lambda one: (one[1][0] > 0, -abs(one[1][1] - one[1][0]))
    )
    for op, (before, after) in order:
        if before == 0:
            yield f"new {op}" if after == 1 else f"new {op} x {after}"
        elif before != after:
            yield f"{op} {before} -> {after}"
    yield from (op for op, (before, after) in order if before == after)


def _place(change: LineChange) -> str:
    inside = f" ({change.innermost})" if change.innermost else ""
    return f"{change.location or 'line unknown'}{inside}"
