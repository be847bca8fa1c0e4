"""Adam on all parameters at once, one after the other, or fused: memory beside theirs."""

from __future__ import annotations

import pytest
import torch


ONE = 64 * 2**10
ALL = 50 * ONE


def update(device, **mode):
    """A step of Adam on 50 weights of 64 KiB."""
    weights = [
        torch.zeros(128, 128, device=device, requires_grad=True) for _ in range(50)
    ]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    return torch.optim.Adam(weights, **mode).step


def needed_beside(gpuperf, **mode):
    """Return the bytes of a step's own results; all at once they are as large as ALL."""
    all_at_once = update(gpuperf.device, foreach=True)
    result = gpuperf.compare(all_at_once, update(gpuperf.device, **mode))
    return ALL + result.memory.difference


@pytest.mark.claim("C6")
def test_a_for_loop_needs_memory_for_one_parameter(gpuperf):
    beside = needed_beside(gpuperf, foreach=False)

    assert ONE <= beside <= 4 * ONE


@pytest.mark.claim("C6")
def test_a_fused_optimizer_needs_no_memory_of_its_own(gpuperf):
    beside = needed_beside(gpuperf, fused=True)

    assert beside == pytest.approx(0, abs=ONE / 2)
