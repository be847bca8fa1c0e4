"""The trainers of frameworks that say by a callback where their steps end.

Which of them a trainer is, the package of its class says.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from ..errors import ErrorId, UsageError
from .handover import (
    BY_HAND,
    ENDLESS_STEPS,
    EndStep,
    OptimizerLoop,
    StepBatches,
    TrainingLoop,
    changed,
)


class TrainerLoop:
    """Runs *trainer* with *arguments*, and counts the waits for its batches."""

    def __init__(self, trainer: Any, arguments: tuple[object, ...]) -> None:
        self.batches = StepBatches()
        self._trainer = trainer
        self._arguments = arguments


# The ``Trainer`` of Lightning, under both of its names.
#
# Its steps end at ``Callback.on_train_batch_end`` of the batch after which the optimizer
# has made a step: a step has all its micro-batches.

FETCHES = "train_dataloader_next"
"""The end of the name under which Lightning's profilers time a fetch."""


class LightningLoop(TrainerLoop):
    """Calls ``fit`` of *trainer*, which saves and validates nothing, and logs nowhere."""

    name = "lightning.Trainer"
    remedy = (
        "a callback or the module stopped it, or no optimizer made a step; leave out "
        "what sets trainer.should_stop"
    )

    def run(self, end_step: EndStep) -> None:
        """Train until *end_step* says that it is enough."""
        trainer = self._trainer
        epochs, steps = trainer.fit_loop, trainer.fit_loop.epoch_loop
        ended_by = lightning_callback(package_of(trainer), end_step, self.batches)
        callbacks = [*kept_callbacks(trainer), ended_by]
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(changed(epochs, max_epochs=-1, min_epochs=None))
            enter(changed(steps, max_steps=-1, min_steps=None))
            enter(changed(trainer, limit_val_batches=0, callbacks=callbacks))
            enter(changed(trainer, loggers=silent_loggers(trainer)))
            fetches = TimedFetches(trainer.profiler, self.batches)
            enter(changed(trainer, profiler=fetches))
            trainer.fit(*self._arguments)


def package_of(trainer: Any) -> str:
    """Return the package that *trainer* is from: Lightning has two names."""
    return next(
        module.removesuffix(".trainer.trainer")
        for module in (kind.__module__ for kind in type(trainer).__mro__)
        if module.startswith(("lightning.", "pytorch_lightning."))
    )


def kept_callbacks(trainer: Any) -> list[object]:
    """Return the callbacks of *trainer* that save nothing and do not stop it."""
    others = [*trainer.checkpoint_callbacks, *trainer.early_stopping_callbacks]
    return [callback for callback in trainer.callbacks if callback not in others]


def silent_loggers(trainer: Any) -> list[object]:
    """Return what takes the metrics of *trainer* as its loggers did, and writes none."""
    if not trainer.loggers:
        return []
    return [import_module(f"{package_of(trainer)}.loggers.logger").DummyLogger()]


class TimedFetches:
    """The profiler of a trainer, which says besides when a batch is fetched."""

    def __init__(self, profiler: object, batches: StepBatches) -> None:
        self._profiler: Any = profiler
        self._batches = batches

    def start(self, name: str) -> None:
        """Begin what *name* is."""
        if name.endswith(FETCHES):
            self._batches.fetch()
        self._profiler.start(name)

    def stop(self, name: str) -> None:
        """End it."""
        self._profiler.stop(name)
        if name.endswith(FETCHES):
            self._batches.came()

    def __getattr__(self, name: str) -> object:
        return getattr(self._profiler, name)


def lightning_callback(package: str, end_step: EndStep, batches: StepBatches) -> object:
    """Return the callback that ends steps by *end_step* and training after the last."""
    callback: type = import_module(package).Callback

    class LightningStepEnds(callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self._steps = 0

        def setup(self, trainer: Any, *_: object, **__: object) -> None:
            # The module's own callbacks have come since.
            trainer.callbacks = kept_callbacks(trainer)

        def on_train_start(self, trainer: Any, _: object) -> None:
            self._steps = trainer.global_step
            loader = trainer.train_dataloader
            batches.has_workers(
                getattr(loader, "num_workers", 0),
                kept=getattr(loader, "persistent_workers", False),
            )
            # What it watches may be a metric of the validation, which is off.
            for schedule in trainer.lr_scheduler_configs:
                schedule.strict = False

        def on_train_epoch_start(self, *_: object) -> None:
            batches.epoch()

        def on_train_batch_end(self, trainer: Any, *_: object) -> None:
            if trainer.global_step == self._steps:
                return
            self._steps = trainer.global_step
            batches.step()
            if not end_step():
                trainer.should_stop = True

    return LightningStepEnds()


# The ``Trainer`` of transformers, and those that inherit it, such as TRL's.
#
# Its steps end at ``TrainerCallback.on_step_end``: a step is one of the optimizer, with
# all its micro-batches.

WRITERS: Final = ("transformers.integrations", "transformers.utils.notebook")
"""Modules with callbacks that write to other services or to a page."""

PRINTERS: Final = frozenset({"ProgressCallback", "PrinterCallback"})
"""Callbacks that print."""


class TransformersLoop(TrainerLoop):
    """Calls ``train()`` of *trainer*, which saves, evaluates and reports nothing."""

    name = "transformers.Trainer"
    remedy = (
        "a callback stopped it, or its dataset gave no batch; leave out callbacks that "
        "set control.should_training_stop, such as EarlyStoppingCallback"
    )

    def run(self, end_step: EndStep) -> None:
        """Train until *end_step* says that it is enough."""
        trainer = self._trainer
        endless = changed(trainer.args, max_steps=ENDLESS_STEPS, eval_on_start=False)
        callback = transformers_callback(end_step, self.batches)
        with endless, without_writers(trainer), with_callback(trainer, callback):
            trainer.train(*self._arguments)


@contextmanager
def without_writers(trainer: Any) -> Iterator[None]:
    """Take the callbacks off *trainer* that report, print or draw."""
    callbacks = trainer.callback_handler.callbacks
    writers = [c for c in callbacks if writes(type(c))]
    for callback in writers:
        trainer.remove_callback(callback)
    try:
        yield
    finally:
        for callback in writers:
            trainer.add_callback(callback)


def writes(kind: type) -> bool:
    """Whether a callback of this *kind* only writes what others read."""
    return kind.__module__.startswith(WRITERS) or (
        kind.__module__.startswith("transformers.") and kind.__name__ in PRINTERS
    )


@contextmanager
def with_callback(trainer: Any, callback: object) -> Iterator[None]:
    """Add *callback*, the last of those of *trainer*."""
    trainer.add_callback(callback)
    try:
        yield
    finally:
        trainer.remove_callback(callback)


def transformers_callback(end_step: EndStep, batches: StepBatches) -> object:
    """Return the callback that ends steps by *end_step* and training after the last."""
    from transformers import TrainerCallback

    class TransformersStepEnds(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, *_: object, **__: object) -> None:
            kept = getattr(args, "dataloader_persistent_workers", False)
            batches.has_workers(args.dataloader_num_workers, kept=kept)

        def on_epoch_begin(self, *_: object, **__: object) -> None:
            batches.epoch()
            batches.fetch()

        def on_step_begin(self, *_: object, **__: object) -> None:
            batches.came()

        def on_step_end(self, _: Any, __: Any, control: Any, **___: object) -> None:
            batches.step()
            if not end_step():
                control.should_training_stop = True
            self.save_nothing(control)
            batches.fetch()

        def on_log(self, *_: object, **__: object) -> None:
            # To log is not to wait for a batch.
            batches.fetch()

        def on_epoch_end(self, _: Any, __: Any, control: Any, **___: object) -> None:
            self.save_nothing(control)

        @staticmethod
        def save_nothing(control: Any) -> None:
            control.should_save = control.should_evaluate = False

    return TransformersStepEnds()


# Which adapter measures a trainer: by the package that its class is from.


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
