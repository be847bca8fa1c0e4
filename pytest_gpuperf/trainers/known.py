"""Which adapter measures a trainer: by the package that its class is from."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ..errors import ErrorId, UsageError
from .frameworks import LightningLoop, TransformersLoop
from .training import BY_HAND, OptimizerLoop, TrainingLoop


Arguments = tuple[object, ...]


def accelerated(accelerator: object, arguments: Arguments) -> TrainingLoop:
    """Return the loop of *accelerator*: the first of *arguments*, with the others.

    Raises ``UsageError`` if that is no function.
    """
    del accelerator
    train, *rest = arguments or (None,)
    if not callable(train):
        msg = (
            "gpuperf.trainer(accelerator, train): expected the function with the training "
            f"loop, found {'a ' + type(train).__name__ if arguments else 'none'}; "
            "accelerate's loops are those of their users, so pass the loop as well"
        )
        raise UsageError(msg, ErrorId.GP223)
    return OptimizerLoop("accelerator, train", partial(train, *rest), repeats=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """Trainers are objects of the class *trainer* of *package*.

    ``oldest`` is the first version that was tried.
    """

    package: str
    trainer: str
    oldest: tuple[int, int]
    loop: Callable[[Any, Arguments], TrainingLoop]


FRAMEWORKS: Final = (
    Framework(
        package="transformers", trainer="Trainer", oldest=(4, 46), loop=TransformersLoop
    ),
    Framework(
        package="lightning", trainer="Trainer", oldest=(2, 1), loop=LightningLoop
    ),
    Framework(
        package="pytorch_lightning",
        trainer="Trainer",
        oldest=(2, 1),
        loop=LightningLoop,
    ),
    Framework(
        package="accelerate", trainer="Accelerator", oldest=(1, 0), loop=accelerated
    ),
)


def loop_of(trainer: object, arguments: Arguments) -> TrainingLoop:
    """Return what runs *trainer* with *arguments*.

    Raises ``UsageError`` for an object that does not train, and for a framework of a
    version that is too old.
    """
    for framework in FRAMEWORKS:
        if is_of(framework, type(trainer)):
            _refuse_old(framework)
            return framework.loop(trainer, arguments)
    if inspect.isroutine(trainer) or isinstance(trainer, partial):
        train = partial(trainer, *arguments)
        return OptimizerLoop(getattr(trainer, "__name__", "train"), train, repeats=True)
    method = getattr(trainer, "train", None) or getattr(trainer, "fit", None)
    if callable(method) and not is_module(type(trainer)):
        train = partial(method, *arguments)
        return OptimizerLoop(type(trainer).__name__, train, repeats=False)
    raise _unknown(trainer)


def is_of(framework: Framework, kind: type) -> bool:
    """Whether *kind* is a class of *framework* or inherits one."""
    return any(
        base.__name__ == framework.trainer
        and base.__module__.partition(".")[0] == framework.package
        for base in kind.__mro__
    )


def is_module(kind: type) -> bool:
    """Whether *kind* is a module of torch: its ``train`` is a mode and no loop."""
    return any(
        base.__name__ == "Module" and base.__module__.startswith("torch.nn.")
        for base in kind.__mro__
    )


def _unknown(trainer: object) -> UsageError:
    kind = type(trainer)
    msg = (
        f"gpuperf.trainer(trainer): found a {kind.__name__} of {kind.__module__}, which "
        "does not train by itself; expected a Trainer of transformers or Lightning, an "
        "Accelerator and the function that trains, an object with train() or fit(), or a "
        f"function; for any other loop {BY_HAND}"
    )
    return UsageError(msg, ErrorId.GP223)


def _refuse_old(framework: Framework) -> None:
    version = str(getattr(sys.modules[framework.package], "__version__", ""))
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not found or found >= framework.oldest:
        return
    oldest = ".".join(map(str, framework.oldest))
    msg = (
        f"gpuperf.trainer(trainer): found {framework.package} {version}, expected "
        f"{oldest} or newer; install a newer one, or {BY_HAND}"
    )
    raise UsageError(msg, ErrorId.GP224)
