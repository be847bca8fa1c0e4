"""Lightning's Trainer waits for what it logs, and for nothing else.

``self.log`` keeps the value on the GPU; the loggers read it every ``log_every_n_steps``.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pytest_gpuperf as gpuperf


def module():
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)
            )

        def training_step(self, batch, _):
            rows, labels = batch
            loss = nn.functional.cross_entropy(self.layers(rows), labels)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    return Classifier()


def trainer_with(folder, device, **settings):
    return pytest.importorskip("lightning").Trainer(
        accelerator="cpu" if device == "cpu" else "auto",
        devices=1,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def loader(device):
    rows = TensorDataset(torch.rand(640, 64), torch.arange(640) % 10)
    return DataLoader(rows, batch_size=16, pin_memory=device == "cuda")


@gpuperf.budget(syncs=0, pageable_copies=0)
@pytest.mark.filterwarnings("ignore::Warning:lightning")
def test_a_step_that_is_not_logged_waits_for_nothing(gpuperf, tmp_path):
    trainer = trainer_with(tmp_path, gpuperf.device, logger=False)

    gpuperf.trainer(trainer, module(), loader(gpuperf.device), samples=16)


@gpuperf.budget(syncs=1)
@pytest.mark.filterwarnings("ignore::Warning:lightning")
def test_a_value_that_is_logged_at_each_step_is_read_once(gpuperf, tmp_path):
    trainer = trainer_with(tmp_path, gpuperf.device, log_every_n_steps=1)

    gpuperf.trainer(trainer, module(), loader(gpuperf.device))

    if gpuperf.measurement is not None and gpuperf.device == "cuda":
        assert gpuperf.measurement.exact["syncs"] == 1
