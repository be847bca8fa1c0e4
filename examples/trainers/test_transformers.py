"""The Trainer of transformers waits four times a step, and need not wait at all.

By default it reads each loss twice, to keep NaN out of its log, and its copies block.
Logging is not the step's: it waits twice whenever it is done.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


QUIET = {
    "accelerator_config": {"non_blocking": True},
    "logging_nan_inf_filter": False,
}


class Classifier(nn.Module):
    """A model that returns its own loss, as the Trainer wants it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, rows, labels):
        return {"loss": nn.functional.cross_entropy(self.layers(rows), labels)}


def trainer_with(folder, device, **settings):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=16,
        report_to="none",
        use_cpu=device == "cpu",
        dataloader_pin_memory=device == "cuda",
        **settings,
    )
    dataset = [{"rows": torch.rand(64), "labels": n % 10} for n in range(64)]
    return transformers.Trainer(Classifier(), arguments, train_dataset=dataset)


@gpuperf.budget(syncs=4)
def test_the_trainer_waits_for_its_copies_and_for_nan(gpuperf, tmp_path):
    gpuperf.trainer(trainer_with(tmp_path, gpuperf.device))


@gpuperf.budget(syncs=0)
def test_two_settings_leave_no_wait(gpuperf, tmp_path):
    gpuperf.trainer(trainer_with(tmp_path, gpuperf.device, **QUIET), samples=16)


@gpuperf.budget(syncs=2)
def test_a_log_at_each_step_waits_twice(gpuperf, tmp_path):
    trainer = trainer_with(tmp_path, gpuperf.device, **QUIET, logging_steps=1)

    gpuperf.trainer(trainer)

    if gpuperf.measurement is not None and gpuperf.device == "cuda":
        assert gpuperf.measurement.exact["syncs"] == 2
