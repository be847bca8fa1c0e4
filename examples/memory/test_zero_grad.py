"""Gradients of the last step during the forward of the next: full of zeros, or gone."""

from __future__ import annotations

import pytest
import torch
from torch import nn


class Scale(nn.Module):
    """Its weight, and so its gradient, is as large as what it keeps for the backward."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256, 1024))

    def forward(self, x):
        return torch.tanh(x * self.weight)


LAYERS = 4
GRADIENTS = LAYERS * 2**20
"""Their bytes."""


def step_of(device, *, set_to_none):
    model = nn.Sequential(*(Scale() for _ in range(LAYERS))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.linspace(-1, 1, 256 * 1024, device=device).view(256, 1024)

    def step():
        optimizer.zero_grad(set_to_none=set_to_none)
        model(x).square().sum().backward()
        optimizer.step()

    return step


def compared(gpuperf):
    return gpuperf.compare(
        step_of(gpuperf.device, set_to_none=False),
        step_of(gpuperf.device, set_to_none=True),
        same_training=True,
    )


@pytest.mark.claim("Y8")
def test_gradients_are_let_go_and_not_zeroed(gpuperf):
    result = compared(gpuperf)

    assert result.memory.difference == -GRADIENTS


@pytest.mark.claim("Y8", gate="operations")
@pytest.mark.usefixtures("gpu")
def test_nothing_writes_zeros_or_adds_to_them(gpuperf):
    result = compared(gpuperf)

    assert result.ops.difference == -2 * LAYERS
