"""The CPU time of a step by hand, by a trainer, and by a trainer that is measured.

    python benchmarks/trainers.py [WIDTH BATCH TURNS]

It needs transformers, accelerate and lightning. All train the same model with the same
optimizer and batches, in turns. The second less the first is the framework's own work in
a step, the third less the second is what this package adds.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import median
from typing import Any

import accelerate
import lightning
import torch
import transformers
from torch.nn import functional
from torch.utils.data import DataLoader

from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.trainers.known import loop_of
from pytest_gpuperf.trainers.training import measure_training


STEPS, WARM, TURNS, WIDTH, BATCH = 10, 3, 15, 768, 64


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": functional.cross_entropy(self.layers(x), labels)}


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


def rows() -> list[dict[str, Any]]:
    return [{"x": torch.randn(WIDTH), "labels": n % 10} for n in range(8 * BATCH)]


def loader() -> DataLoader[Any]:
    return DataLoader(rows(), batch_size=BATCH)  # type: ignore[arg-type]


def by_hand(*, clip: bool) -> Callable[[], object]:
    model = Model()
    optimizer = optimizer_of(model)
    loaded = loader()
    batches = (batch for _ in count() for batch in loaded)

    def step() -> None:
        model(**next(batches))["loss"].backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def of_transformers() -> tuple[object, ...]:
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        save_strategy="no",
        disable_tqdm=True,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        report_to="none",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        optim="adamw_torch",
    )
    return (transformers.Trainer(Model(), arguments, train_dataset=rows()),)


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.model(**batch)["loss"]  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return optimizer_of(self)


def of_lightning() -> tuple[object, ...]:
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return trainer, Module(), loader()


def of_accelerate() -> tuple[object, ...]:
    accelerator = accelerate.Accelerator(cpu=True)
    model = Model()
    parts = accelerator.prepare(model, optimizer_of(model), loader())

    def epoch() -> None:
        model, optimizer, batches = parts
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()

    return accelerator, epoch


class StepClock:
    """CPU time of a step of a loop that calls ``end_step``, by all threads of the process."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._steps = 0
        self._start_ns = 0

    def end_step(self) -> bool:
        """End a step; return whether another one is wanted."""
        self._steps += 1
        if self._steps == WARM:
            self._start_ns = time.process_time_ns()
        if self._steps < WARM + STEPS:
            return True
        self.ms = (time.process_time_ns() - self._start_ns) / STEPS / 1e6
        return False


class TransformersClock(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_step_end(self, _: Any, __: Any, control: Any, **___: object) -> None:
        control.should_training_stop = not self._clock.end_step()


class LightningClock(lightning.Callback):  # type: ignore[misc]
    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:
        trainer.should_stop = not self._clock.end_step()


def transformers_alone(clock: StepClock) -> None:
    (trainer,) = of_transformers()
    trainer.add_callback(TransformersClock(clock))  # type: ignore[attr-defined]
    trainer.train()  # type: ignore[attr-defined]


def lightning_alone(clock: StepClock) -> None:
    trainer, module, batches = of_lightning()
    trainer.callbacks.append(LightningClock(clock))  # type: ignore[attr-defined]
    trainer.fit(module, batches)  # type: ignore[attr-defined]


def accelerate_alone(clock: StepClock) -> None:
    accelerator: Any = accelerate.Accelerator(cpu=True)
    made = Model()
    model, optimizer, batches = accelerator.prepare(made, optimizer_of(made), loader())
    for batch in (batch for _ in count() for batch in batches):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
        if not clock.end_step():
            return


def hand_ms(*, clip: bool) -> float:
    clock, step = StepClock(), by_hand(clip=clip)
    step()
    while clock.end_step():
        step()
    return clock.ms


def alone_ms(train: Callable[[StepClock], None]) -> float:
    clock = StepClock()
    train(clock)
    return clock.ms


def measured_ms(trainer: tuple[object, ...]) -> float:
    """Measure the steps of *trainer* as a test does: a round at a call."""
    found: list[float] = []

    def measure(subject: Subject) -> None:
        subject.step(WARM)
        start_ns = time.process_time_ns()
        subject.step(STEPS)
        found.append((time.process_time_ns() - start_ns) / STEPS / 1e6)

    measure_training(loop_of(trainer[0], trainer[1:]), measure)
    return found[0]


FRAMEWORKS: dict[str, tuple[bool, Callable[[StepClock], None], Callable[[], Any]]] = {
    "transformers": (True, transformers_alone, of_transformers),
    "lightning": (False, lightning_alone, of_lightning),
    "accelerate": (False, accelerate_alone, of_accelerate),
}


def turns_of(name: str) -> list[tuple[float, float, float]]:
    """Return the milliseconds of each turn: by hand, by the trainer, by it and measured.

    Each turn begins with another of them: what comes first has the memory anew.
    """
    clip, alone, made = FRAMEWORKS[name]
    ways: list[Callable[[], float]] = [
        partial(hand_ms, clip=clip),
        partial(alone_ms, alone),
        lambda: measured_ms(made()),
    ]
    turns = []
    for turn in range(TURNS):
        order = sorted(range(3), key=lambda way: (way + turn) % 3)
        found = {way: ways[way]() for way in order}
        turns.append((found[0], found[1], found[2]))
    return turns


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    heads = ("by hand", "trainer", "measured", "theirs", "ours")
    print(f"{'':14}" + "".join(f"{head:>10}" for head in heads) + "  ms of CPU a step")
    for name in FRAMEWORKS:
        turns = turns_of(name)
        # Neighbours on the machine add to each, and a turn has all three: the median of
        # what they differ by is nearer than the difference of what each took at least.
        hand, alone, measured = (median(side) for side in zip(*turns, strict=True))
        theirs = median(b - a for a, b, _ in turns)
        ours = median(c - b for _, b, c in turns)
        both = median(c - a for a, _, c in turns)
        print(
            f"{name:14}{hand:10.2f}{alone:10.2f}{measured:10.2f}{theirs:10.3f}{ours:10.3f}"
            f"  theirs {theirs / hand:+.1%}, ours {ours / hand:+.1%}, both {both / hand:+.1%}",
            flush=True,
        )


if __name__ == "__main__":
    WIDTH, BATCH, TURNS = map(int, sys.argv[1:4] or (WIDTH, BATCH, TURNS))
    main()
