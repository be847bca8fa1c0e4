"""Blocks that keep their input alone and run once more in the backward."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Its memory is all activations."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        return torch.sigmoid(torch.tanh(x * self.scale).exp())


def training(device, run):
    blocks = nn.ModuleList(Block() for _ in range(8)).to(device)
    rows = torch.linspace(-1, 1, 512 * 1024, device=device).view(512, 1024)

    def step():
        x = rows
        for block in blocks:
            x = run(block, x)
        blocks.zero_grad()
        x.mean().backward()

    return step


def recomputed(block, x):
    return checkpoint(block, x, use_reentrant=False)


@pytest.mark.claim("M6")
def test_recomputed_blocks_keep_their_inputs_alone(gpuperf):
    result = gpuperf.compare(
        training(gpuperf.device, lambda block, x: block(x)),
        training(gpuperf.device, recomputed),
        same_training=True,
    )

    assert result.memory.after < 0.6 * result.memory.before
