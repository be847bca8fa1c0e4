"""Do both sides still train alike when all has been measured?

A step may do its work only while it is checked: it counts its calls, asks who calls it, or
returns what it has kept. So it is asked at the end how far the parameters have come, and
the check is made once more, from parameters that no step has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from math import isfinite
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import StepError
from ..measure.step import Subject
from .isolation import Pair
from .isolation import tensors_of
from .same_training import TRAINING_REFUSED
from .same_training import difference_of


FRESH_SCALE: Final = 1.5
"""What the first parameters are multiplied by: what was kept of them is of no use."""

ALIKE_AT_END: Final = 0.5
"""Relative difference that passes: other state has moved on, of each side by itself."""

MOST_SHIFTS: Final = 16
"""Steps that one side may be behind the other, where a step updates every few calls."""

FAR_APART: Final = 10.0
"""How many times as far the parameters of one side may have come."""

ROUNDING_WAY: Final = 1e-4
"""Way of all parameters, as a share of their norm, that is only rounding."""

Start = Sequence[tuple[Any, Any]]
"""Each parameter of a side, and a copy of it on the host."""


def starts_of(pair: Pair) -> tuple[Start, Start]:
    """Copy the parameters of both sides; none if nobody asks for the training."""
    if pair.training is None:
        return (), ()
    return _start_of(pair.before), _start_of(pair.after)


def _start_of(side: Subject) -> Start:
    trained = [t for t in tensors_of(side.step).values() if t.requires_grad]
    return [(t, t.detach().to("cpu", copy=True).double()) for t in trained if t.is_leaf]


def refuse_other_training(pair: Pair, *starts: Start) -> None:
    """Raise ``StepError`` if the sides do not train alike any more.

    Nothing is known of sides if not all their parameters are found.
    """
    ours, theirs = (sum(then.numel() for _, then in start) for start in starts)
    if not ours or ours != theirs:
        return
    ways = [*map(_way, starts)]
    if not any(map(isfinite, ways)):  # both have diverged, and what is left is NaN
        return
    least, most = sorted(ways)
    found: str | None = (
        f"parameters moved by {least:.2%} on one side, {most:.2%} on the other"
    )
    if most <= max(ROUNDING_WAY, FAR_APART * least):
        found = _difference(pair, starts)
    if found:
        msg = f"{TRAINING_REFUSED}the training differs since the first steps: {found}"
        raise StepError(msg, ErrorId.GP714)


def _difference(pair: Pair, starts: Sequence[Start]) -> str | None:
    differences = []
    for number in range(MOST_SHIFTS):
        for start in starts:
            _set(start, FRESH_SCALE * (-1) ** number)
        differences.append(difference_of(pair, ALIKE_AT_END))
        if differences[-1] is None:
            return None
        pair.after.run_once()
    return differences[0]


def _way(start: Start) -> float:
    """Return how far the parameters have come since *start*, as a share of their norm."""
    way = hypot(
        *(float((tensor.detach().cpu() - then).norm()) for tensor, then in start)
    )
    return way / (hypot(*(float(then.norm()) for _, then in start)) or 1.0)


def _set(start: Start, scale: float) -> None:
    import torch

    with torch.no_grad():
        for tensor, then in start:
            tensor.copy_(scale * then)
