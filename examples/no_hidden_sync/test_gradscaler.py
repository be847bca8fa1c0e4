"""A gradient scaler asks the device in each step whether a gradient overflowed.

An optimizer that is not fused takes its step or leaves it, and the host must know which.
A fused one is told where the answer lies and decides on the device.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


def scaled_step(device, *, fused):
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler(device)
    rows = torch.randn(16, 64, device=device)

    def step():
        with torch.autocast(device, dtype=torch.float16):
            loss = model(rows).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


@pytest.mark.claim("Y11")
@gpuperf.budget(syncs=0)
def test_a_fused_optimizer_spares_the_scaler_its_wait(gpuperf):
    result = gpuperf.compare(
        scaled_step(gpuperf.device, fused=False),
        scaled_step(gpuperf.device, fused=True),
    )

    assert (result.syncs.before, result.syncs.after) == (1, 0)
