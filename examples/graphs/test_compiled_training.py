"""A training step, compiled: the same training, in less time once it is compiled."""

from __future__ import annotations

import pytest
import torch
from inductor import compiled
from inductor import needs_compiler
from torch import nn


class Block(nn.Module):
    """Two layers with the activation of GPT-2 between them, spelled out as it was."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        hidden = self.wide(self.norm(x))
        inner = torch.tanh(0.7979 * (hidden + 0.044715 * hidden**3))
        return x + self.narrow(0.5 * hidden * (1.0 + inner))


def training(device, compile_it):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows, run = torch.randn(1024, 64, device=device), compile_it(model)

    def step():
        optimizer.zero_grad()
        run(rows).square().mean().backward()
        optimizer.step()

    return step


def traced(model):
    return torch.compile(
        model, backend="aot_eager"
    )  # all of a compiler but its kernels


@pytest.mark.claim("G4")
def test_a_captured_backward_trains_the_same(gpuperf):
    device = gpuperf.device

    result = gpuperf.compare(
        training(device, nn.Module.train), training(device, traced), same_training=True
    )

    assert result.syncs.after == 0


@needs_compiler
@pytest.mark.slow
@pytest.mark.claim("G4")
def test_compiled_training_is_quicker(gpuperf):
    device = gpuperf.device

    result = gpuperf.compare(
        training(device, nn.Module.train), training(device, compiled), speedup=1.1
    )

    assert result.time.verdict != "slower"
