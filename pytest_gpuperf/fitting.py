"""The question of ``gpuperf.fits``, checked before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from math import inf

from .errors import StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuestion:
    """What makes the step, for half the batch too if that is known, and the GPU.

    Ghosts hold ``values``, or sizes alone; ``levers`` are tried, or are not.
    """

    make: Callable[[], object]
    halved: Callable[[], object] | None
    gib: float
    values: bool
    levers: bool


def fit_question(
    make_step: object, *, gb: object, batch: object, values: bool, levers: bool
) -> FitQuestion:
    """Raise ``StepError`` where the question makes no sense."""
    if not callable(make_step):
        msg = (
            f"gpuperf.fits(make_step): expected a function that returns a step, found "
            f"{make_step!r} of type {type(make_step).__name__}; pass the function itself"
        )
        raise StepError(msg)
    if not isinstance(gb, (int, float)) or not 0 < gb < inf:
        msg = f"gpuperf.fits(gb={gb!r}): expected a number of GiB above 0, such as 80"
        raise StepError(msg)
    question = FitQuestion(
        make=make_step, halved=None, gib=gb, values=values, levers=levers
    )
    if batch is None:
        return question
    if not isinstance(batch, int) or batch < 2:  # noqa: PLR2004, to be halved
        msg = f"gpuperf.fits(batch={batch!r}): expected a batch size of 2 or more"
        raise StepError(msg)
    return replace(
        question,
        make=partial(make_step, batch),
        halved=partial(make_step, batch // 2),
    )
