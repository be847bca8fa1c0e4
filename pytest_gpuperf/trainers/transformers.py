"""The ``Trainer`` of transformers, and those that inherit it, such as TRL's.

Its steps end at ``TrainerCallback.on_step_end``: a step is one of the optimizer, with
all its micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from typing import Final

from .training import ENDLESS_STEPS
from .training import EndStep
from .training import StepBatches
from .training import changed


WRITERS: Final = ("transformers.integrations", "transformers.utils.notebook")
"""Modules with callbacks that write to other services or to a page."""

PRINTERS: Final = frozenset({"ProgressCallback", "PrinterCallback"})
"""Callbacks that print."""


class TransformersLoop:
    """Calls ``train()`` of *trainer*, which saves, evaluates and reports nothing."""

    name = "transformers.Trainer"
    remedy = (
        "a callback stopped it, or its dataset gave no batch; leave out callbacks that "
        "set control.should_training_stop, such as EarlyStoppingCallback"
    )

    def __init__(self, trainer: Any, arguments: tuple[object, ...]) -> None:
        self.batches = StepBatches()
        self._trainer = trainer
        self._arguments = arguments

    def run(self, end_step: EndStep) -> None:
        """Train until *end_step* says that it is enough."""
        trainer = self._trainer
        endless = changed(trainer.args, max_steps=ENDLESS_STEPS, eval_on_start=False)
        callback = step_callback(end_step, self.batches)
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


def step_callback(end_step: EndStep, batches: StepBatches) -> object:
    """Return the callback that ends steps by *end_step* and training after the last."""
    from transformers import TrainerCallback

    class TransformersStepEnds(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, *_: object, **__: object) -> None:
            batches.has_workers(args.dataloader_num_workers)

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
