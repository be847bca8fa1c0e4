"""Predicts what a step would need that is made anew for each lever."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..devices.pretend import pretend_gpu
from ..devices.protocol import Step
from ..errors import StepError
from ..model.forecast import Forecast
from ..model.forecast import Lever


STEADY_STEPS: Final = 2
"""The first makes the optimizer's state; a third one is looked around in."""

Make = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What a step would need as it is, and with each lever; ``None``: it fails then."""

    forecast: Forecast
    levers: dict[Lever, Forecast | None]


def foresee(
    make: Make, halved: Make | None, *, root: str, values: bool, levers: bool
) -> Foresight:
    """Predict the step that *make* makes, and again with each lever if *levers*.

    *halved* makes it for half the batch. Ghosts hold *values*, or sizes only. Lines
    below the directory *root* are the project's. Raises whatever *make* and its step
    raise without a lever.
    """
    with pretend_gpu(root, values=values):
        forecast = _forecast(make, root, nullcontext)
        tried = dict(_with_levers(make, halved, root)) if levers else {}
        return Foresight(forecast=forecast, levers=tried)


def _with_levers(
    make: Make, halved: Make | None, root: str
) -> Iterator[tuple[Lever, Forecast | None]]:
    from .levers import pulled

    for lever in Lever:
        made = halved if lever is Lever.HALF_BATCH else make
        if made is None:
            continue
        try:
            yield lever, _forecast(made, root, partial(pulled, lever))
        except Exception:  # noqa: BLE001, whatever the step makes of a lever
            yield lever, None


def _forecast(
    make: Make, root: str, pull: Callable[[], AbstractContextManager[None]]
) -> Forecast:
    from ..devices.pretend.memory_audit import watching_memory
    from .forecast import forecast_of

    gc.collect()
    with watching_memory(from_now=True) as memory:
        step = made_by(make)
        with pull():
            for _ in range(STEADY_STEPS):
                memory.step(step)
            picture = memory.explained_step(step, root)
        steps = memory.memories()
        return forecast_of(steps, memory.live, picture, ended=len(steps))


def made_by(make: Make) -> Step:
    """Return what *make* makes; raise ``StepError`` where that is no step."""
    step = make()
    if not callable(step):
        msg = (
            f"gpuperf.fits(make_step): expected a function that returns a step, found "
            f"one that returns {type(step).__name__}; return the step, without calling it"
        )
        raise StepError(msg)
    return step
