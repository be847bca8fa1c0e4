"""A forward that nobody goes back through keeps none of its activations."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.mark.claim("Y7")
def test_inference_keeps_nothing_for_a_backward(gpuperf):
    model = nn.Sequential(
        *(layer for _ in range(4) for layer in (nn.Tanh(), nn.Sigmoid()))
    )
    rows = torch.randn(1024, 1024, device=gpuperf.device, requires_grad=True)

    def forward():
        return model(rows)

    result = gpuperf.compare(forward, torch.inference_mode()(forward))

    # eight results beside the input, or two: one that is read and one that is written
    assert result.memory.before / rows.nbytes == pytest.approx(9, abs=0.1)
    assert result.memory.after / rows.nbytes == pytest.approx(3, abs=0.1)
