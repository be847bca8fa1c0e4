"""A loop over a loader as one step: fetch a batch, train on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Iterable

from ..devices.protocol import Step
from ..errors import StepError
from .batches import Batches
from .subject import Subject


def loop_over(loader: object, step: object) -> Subject:
    """Return *step* on the batches of *loader*, one argument each, epoch after epoch.

    Raises ``StepError`` where the one cannot be iterated or the other cannot be called
    with a batch.
    """
    batches = Batches(_iterable(loader))
    train = _of_one_batch(step)

    def fetch_and_train() -> object:
        return train(batches.take())

    return Subject(step=fetch_and_train, batches=batches)


def _iterable(loader: object) -> Iterable[object]:
    if isinstance(loader, Iterable):
        return loader
    if hasattr(type(loader), "__getitem__"):
        return loader  # type: ignore[return-value]  # iter() takes a sequence as well
    msg = (
        "gpuperf.loader(loader, step): expected a loader that can be iterated, such as "
        f"a DataLoader, found one of type {type(loader).__name__}; the loader comes "
        "first, then the step"
    )
    raise StepError(msg)


def _of_one_batch(step: object) -> Step:
    if not callable(step):
        msg = (
            "gpuperf.loader(loader, step): expected a function of one batch as the step, "
            f"found {step!r} of type {type(step).__name__}; pass the function itself, "
            "without calling it"
        )
        raise StepError(msg)
    parameters = _wrong_parameters(step)
    if parameters:
        msg = (
            f"gpuperf.loader(loader, step): the step takes {parameters}, expected one "
            "argument: the batch as the loader gives it; unpack it inside the step, or "
            "pass lambda batch: step(*batch)"
        )
        raise StepError(msg)
    return step


def _wrong_parameters(step: Callable[..., object]) -> str:
    """Return the signature of *step* where it does not take one argument."""
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        return ""  # of some built-in functions nothing is known
    try:
        signature.bind(None)
    except TypeError:
        return str(signature)
    return ""
