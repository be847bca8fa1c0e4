"""The first steps of both sides: are these two that can be compared?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..probes.subject import Subject
from .shared import SharedState


TRAINING_TOLERANCE: Final = 0.01
"""Relative difference that passes where none is named: other kernels, another order of
additions. A step that trains on other numbers differs by tens of percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two steps.

    ``training`` is the relative difference up to which both do the same training;
    ``None`` does not ask.
    """

    before: Subject
    after: Subject
    training: float | None = None


def begin(pair: Pair) -> str:
    """Run each side once, or as often as it takes to see whether both train the same.

    Returns what agreed. Raises ``StepError`` where a side changes what the other uses
    or trains something else, and whatever a step raises.
    """
    shared = SharedState.of(pair.before, pair.after)
    if pair.training is not None:
        from .training import check_training

        return check_training(pair.before, pair.after, shared, pair.training)
    pair.before.run_once()
    shared.refuse_change_by("before")
    pair.after.run_once()
    shared.refuse_change_by("after")
    return ""
