"""A batch of 128 as 8 micro-batches of 16: the same gradients, less memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def training(device, micro_batches):
    torch.manual_seed(0)
    layers = (layer for _ in range(4) for layer in (nn.Conv2d(4, 4, 3), nn.Tanh()))
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(128, 4, 32, 32, device=device)

    def step():
        optimizer.zero_grad()
        for part in images.chunk(micro_batches):
            (model(part).square().mean() / micro_batches).backward()
        optimizer.step()

    return step


@pytest.mark.claim("M5")
def test_micro_batches_train_the_same_in_less_memory(gpuperf):
    result = gpuperf.compare(
        training(gpuperf.device, 1), training(gpuperf.device, 8), same_training=True
    )

    assert result.memory.after < 0.5 * result.memory.before
