"""Adam on all parameters at once, one after the other, or fused: memory beside theirs."""

from __future__ import annotations

import pytest
import torch


def update(device, **mode):
    """A step of Adam on 50 weights of 64 KiB."""
    weights = [
        torch.zeros(128, 128, device=device, requires_grad=True) for _ in range(50)
    ]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    return torch.optim.Adam(weights, **mode).step


WEIGHTS = 50 * 64 * 2**10


@pytest.mark.claim("C6")
def test_a_for_loop_needs_memory_for_one_parameter(gpuperf):
    result = gpuperf.compare(
        update(gpuperf.device, foreach=True), update(gpuperf.device, foreach=False)
    )

    assert result.memory.difference < -0.9 * WEIGHTS


@pytest.mark.claim("C6")
def test_a_fused_optimizer_needs_no_memory_of_its_own(gpuperf):
    result = gpuperf.compare(
        update(gpuperf.device, foreach=True), update(gpuperf.device, fused=True)
    )

    assert result.memory.difference < -0.9 * WEIGHTS
