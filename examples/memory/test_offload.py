"""What forward keeps for backward waits on the host: less memory, and copies both ways."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu


def training(device, keeping):
    model = nn.Sequential(*(nn.Tanh() for _ in range(8)))
    rows = torch.linspace(-1, 1, 2**20, device=device, requires_grad=True)

    def step():
        rows.grad = None
        with keeping():
            total = model(rows).sum()
        total.backward()

    return step


@pytest.mark.claim("M10")
def test_activations_can_wait_on_the_host(gpuperf, gpu):
    result = gpuperf.compare(
        training(gpu, nullcontext), training(gpu, save_on_cpu), same_training=True
    )

    assert result.memory.after < 0.7 * result.memory.before
    assert (result.copies.before, result.copies.after) == (0, 16)
