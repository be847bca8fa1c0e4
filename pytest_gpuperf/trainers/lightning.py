"""The ``Trainer`` of Lightning, under both of its names.

Its steps end at ``Callback.on_train_batch_end`` of the batch after which the optimizer
has made a step: a step has all its micro-batches.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

from .training import EndStep
from .training import StepBatches
from .training import changed


FETCHES = "train_dataloader_next"
"""The end of the name under which Lightning's profilers time a fetch."""


class LightningLoop:
    """Calls ``fit`` of *trainer*, which saves and validates nothing, and logs nowhere."""

    name = "lightning.Trainer"
    remedy = (
        "a callback or the module stopped it, or no optimizer made a step; leave out "
        "what sets trainer.should_stop"
    )

    def __init__(self, trainer: Any, arguments: tuple[object, ...]) -> None:
        self.batches = StepBatches()
        self._trainer = trainer
        self._arguments = arguments

    def run(self, end_step: EndStep) -> None:
        """Train until *end_step* says that it is enough."""
        trainer = self._trainer
        epochs, steps = trainer.fit_loop, trainer.fit_loop.epoch_loop
        ended_by = step_callback(package_of(trainer), end_step, self.batches)
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


def step_callback(package: str, end_step: EndStep, batches: StepBatches) -> object:
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
            batches.has_workers(getattr(loader, "num_workers", 0))
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
