"""Predicts the memory of a step that is made anew for each memory optimization."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from ..devices.base import Step
from ..devices.pretend import pretend_gpu
from ..errors import ErrorId
from ..errors import StepError
from ..model.budget import finite
from ..model.budget import shown
from ..model.forecast import Forecast
from ..model.forecast import Saving


# The question of ``gpuperf.fits``, checked before anything is built.


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuestion:
    """What makes the step, for half the batch too if that is known, and the GPU.

    ``values`` says whether ghosts have values or only sizes, ``savings`` whether those
    are tried.
    """

    make: Callable[[], object]
    halved: Callable[[], object] | None
    gib: float
    values: bool
    savings: bool


def fit_question(
    make_step: object, *, gb: object, batch: object, values: bool, savings: bool
) -> FitQuestion:
    """Raise ``StepError`` if the question makes no sense."""
    if not callable(make_step):
        msg = (
            f"gpuperf.fits(make_step): expected a function that returns a step, found "
            f"{make_step!r} of type {type(make_step).__name__}; pass the function itself"
        )
        raise StepError(msg, ErrorId.GP216)
    if not isinstance(gb, (int, float)) or not 0 < finite(gb) < inf:
        msg = f"gpuperf.fits(gb={shown(gb)}): expected a number of GiB above 0, such as 80"
        raise StepError(msg, ErrorId.GP217)
    question = FitQuestion(
        make=make_step, halved=None, gib=gb, values=values, savings=savings
    )
    if batch is None:
        return question
    if not isinstance(batch, int) or batch < 2:  # noqa: PLR2004, to be halved
        msg = f"gpuperf.fits(batch={batch!r}): expected a batch size of 2 or more"
        raise StepError(msg, ErrorId.GP217)
    return replace(
        question,
        make=partial(make_step, batch),
        halved=partial(make_step, batch // 2),
    )


STEADY_STEPS: Final = 2
"""The first makes the optimizer's state; in a third one the peak is pictured."""

Make = Callable[[], object]


def foresee(
    question: FitQuestion, root: str
) -> tuple[Forecast, dict[Saving, Forecast | None]]:
    """Predict the step of *question* as it is, and with each saving if it asks for them.

    A saving with which the step fails has no prediction. Lines below the directory *root*
    are the project's. Raises whatever makes the step and the step raise without a saving.
    """
    make = question.make
    with pretend_gpu(root, values=question.values):
        forecast = _forecast(make, root, nullcontext)
        if not question.savings:
            return forecast, {}
        return forecast, dict(_with_savings(make, question.halved, root))


def _with_savings(
    make: Make, halved: Make | None, root: str
) -> Iterator[tuple[Saving, Forecast | None]]:
    # Imported late: these modules import torch, and a question that makes no sense is
    # refused without it.
    from .forecast_savings import applied

    for saving in Saving:
        made = halved if saving is Saving.HALF_BATCH else make
        if made is None:
            continue
        try:
            yield saving, _forecast(made, root, partial(applied, saving))
        # Broad on purpose: a saving may break the user's step in any way. That says
        # nothing against the step, only that this saving is no option for it.
        except Exception:  # noqa: BLE001
            yield saving, None


def _forecast(
    make: Make, root: str, apply: Callable[[], AbstractContextManager[None]]
) -> Forecast:
    from ..devices.pretend import watching_memory
    from .forecast_savings import forecast_of

    # What an earlier forecast left in cycles must not die while this one is watched.
    gc.collect()
    with watching_memory(from_now=True) as memory:
        step = made_by(make)
        with apply():
            for _ in range(STEADY_STEPS):
                memory.step(step)
            picture = memory.explained_step(step, root)
        steps = memory.memories()
        return forecast_of(steps, memory.live, picture, ended=len(steps))


def made_by(make: Make) -> Step:
    """Return what *make* makes; raise ``StepError`` if that is no step."""
    step = make()
    if not callable(step):
        msg = (
            f"gpuperf.fits(make_step): expected a function that returns a step, found "
            f"one that returns {type(step).__name__}; return the step, without calling it"
        )
        raise StepError(msg, ErrorId.GP216)
    return step
