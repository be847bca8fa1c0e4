"""The CPU time of a step, written by hand and run by a trainer: what handing over costs.

    python benchmarks/trainers.py

It needs transformers, accelerate and lightning. Each trainer trains the model of the step
by hand, with the same optimizer and batches, and both are measured in turns.
"""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import count
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

ROWS = [{"x": torch.randn(WIDTH), "labels": n % 10} for n in range(8 * BATCH)]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": functional.cross_entropy(self.layers(x), labels)}


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


def loader() -> DataLoader[Any]:
    return DataLoader(ROWS, batch_size=BATCH)  # type: ignore[arg-type]


def by_hand(*, clip: bool) -> Callable[[], object]:
    model = Model()
    optimizer = optimizer_of(model)
    batches = (batch for _ in count() for batch in loader())

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
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        report_to="none",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        optim="adamw_torch",
    )
    return (transformers.Trainer(Model(), arguments, train_dataset=ROWS),)


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


def cpu_ms(subject: Subject) -> float:
    """CPU time of a step of *subject*, by all threads of the process."""
    for arguments in subject.batch(WARM):
        subject.step(*arguments)
    start_ns = time.process_time_ns()
    for arguments in subject.batch(STEPS):
        subject.step(*arguments)
    return (time.process_time_ns() - start_ns) / STEPS / 1e6


def trained_ms(trainer: tuple[object, ...]) -> float:
    found: list[float] = []
    measure_training(
        loop_of(trainer[0], trainer[1:]), lambda subject: found.append(cpu_ms(subject))
    )
    return found[0]


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'':14}{'by hand':>10}{'trainer':>10}  ms of CPU time a step")
    for name, trainer, clip in (
        ("transformers", of_transformers, True),
        ("lightning", of_lightning, False),
        ("accelerate", of_accelerate, False),
    ):
        turns = [
            (cpu_ms(Subject(step=by_hand(clip=clip))), trained_ms(trainer()))
            for _ in range(TURNS)
        ]
        # Others on the machine only add to it.
        hand, theirs = (min(side) for side in zip(*turns, strict=True))
        print(
            f"{name:14}{hand:10.2f}{theirs:10.2f}  {theirs / hand - 1:+.1%}", flush=True
        )


if __name__ == "__main__":
    main()
