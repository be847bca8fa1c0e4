"""One step of Adam on 100 parameters: in a loop, in lists, and fused."""

from __future__ import annotations

import pytest
import torch


def update(device, **mode):
    weights = [torch.zeros(8, 8, device=device, requires_grad=True) for _ in range(100)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    return torch.optim.Adam(weights, **mode).step


@pytest.mark.claim("C5")
def test_a_fused_optimizer_needs_a_few_operations(gpuperf):
    result = gpuperf.compare(
        update(gpuperf.device, foreach=False), update(gpuperf.device, fused=True)
    )

    assert result.ops.before > 500
    assert result.ops.after < 10
