"""Do both sides still train alike when all has been measured?

A step may do its work only while it is checked: it counts its calls, asks who calls it, or
returns what it has kept. So it is asked at the end how far the parameters have come, and
the check is made once more, from parameters that no step has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import StepError
from ..measure.step import Subject
from .isolation import Pair
from .isolation import tensors_of
from .same_training import REFUSED
from .same_training import difference_of


UNSEEN: Final = 1.5
"""What the first parameters are multiplied by: what was kept of them is of no use."""

STILL_ALIKE: Final = 0.5
"""Relative difference that passes: other state has moved on, of each side by itself."""

MOST_SHIFTS: Final = 16
"""Steps that one side may be behind the other, where a step updates every few calls."""

FURTHER: Final = 10.0
"""How many times as far the parameters of one side may have come."""

STANDSTILL: Final = 1e-4
"""Way of all parameters, as a share of their norm, that is only rounding."""

Starts = tuple[Mapping[str, Any], Mapping[str, Any]]


def starts_of(pair: Pair) -> Starts:
    """Copy the parameters of both sides to the host, by name; none if nobody asks."""
    if pair.training is None:
        return {}, {}
    return _start_of(pair.before), _start_of(pair.after)


def refuse_other_training(pair: Pair, starts: Starts) -> None:
    """Raise ``StepError`` if the sides do not train alike any more.

    Nothing is known of sides whose parameters are not all found.
    """
    ours, theirs = (sum(t.numel() for t in start.values()) for start in starts)
    if ours != theirs or not ours:
        return
    found = _apart(pair, starts) or _difference(pair, starts)
    if found:
        msg = (
            f"{REFUSED}the training differs since the sides were measured, though it did "
            f"not before: {found}; let a step do the same work at each call"
        )
        raise StepError(msg, ErrorId.GP714)


def _apart(pair: Pair, starts: Starts) -> str | None:
    least, most = sorted(map(_way, (pair.before, pair.after), starts))
    if most <= max(STANDSTILL, FURTHER * least):
        return None
    return (
        f"the parameters of one side moved by {least:.2%}, of the other by {most:.2%}"
    )


def _difference(pair: Pair, starts: Starts) -> str | None:
    differences = []
    for number in range(MOST_SHIFTS):
        scale = UNSEEN * (-1) ** number
        _set(pair.before, starts[0], scale)
        _set(pair.after, starts[1], scale)
        differences.append(difference_of(pair, STILL_ALIKE))
        if differences[-1] is None:
            return None
        pair.after.run_once()
    return differences[0]


def _parameters(side: Subject) -> dict[str, Any]:
    reached = tensors_of(side.step).items()
    return {name: t for name, t in reached if t.requires_grad and t.is_leaf}


def _start_of(side: Subject) -> dict[str, Any]:
    found = _parameters(side).items()
    return {name: t.detach().to("cpu", copy=True) for name, t in found}


def _way(side: Subject, start: Mapping[str, Any]) -> float:
    """Return how far the parameters of *side* have come since *start*, of their norm."""
    found = [(t.detach().cpu(), start.get(n)) for n, t in _parameters(side).items()]
    known = [(now.double(), then.double()) for now, then in found if then is not None]
    norm = hypot(*(float(then.norm()) for _, then in known))
    return hypot(*(float((now - then).norm()) for now, then in known)) / (norm or 1.0)


def _set(side: Subject, start: Mapping[str, Any], scale: float) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in _parameters(side).items():
            if name in start:
                tensor.copy_(scale * start[name])
