"""A GELU of single operations keeps each result; one with a backward of its own, the input."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F


def composed(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(context, gradient):
        return torch.ops.aten.gelu_backward(gradient, *context.saved_tensors)


def training(gelu, device):
    torch.manual_seed(0)
    x = torch.randn(512, 1024, device=device, requires_grad=True)

    def step():
        x.grad = None
        gelu(x).mean().backward()

    return step


@pytest.mark.claim("C11")
def test_a_backward_of_its_own_keeps_the_input_alone(gpuperf):
    result = gpuperf.compare(
        training(composed, gpuperf.device),
        training(Gelu.apply, gpuperf.device),
        same_training=True,
    )

    assert result.memory.after < 0.7 * result.memory.before
