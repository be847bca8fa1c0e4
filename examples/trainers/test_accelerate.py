"""A loop of accelerate: four micro-batches are one step, and no copy of them blocks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pytest_gpuperf as gpuperf


def epoch(accelerator, model, optimizer, loader):
    for rows, labels in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(rows), labels))
            optimizer.step()
            optimizer.zero_grad()


@gpuperf.budget(syncs=0, pageable_copies=0)
def test_micro_batches_wait_for_nothing(gpuperf):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(
        cpu=gpuperf.device == "cpu",
        gradient_accumulation_steps=4,
        dataloader_config=accelerate.DataLoaderConfiguration(non_blocking=True),
    )
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    rows = TensorDataset(torch.rand(256, 64), torch.arange(256) % 10)
    parts = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters()),
        DataLoader(rows, batch_size=16, pin_memory=gpuperf.device == "cuda"),
    )

    gpuperf.trainer(accelerator, epoch, accelerator, *parts, samples=64)
