"""A GELU of single operations keeps each result; one with a backward of its own, the input."""

from __future__ import annotations

import pytest
import torch
from models.gelu import spelled_out
from torch.nn import functional as F


ROWS, WIDTH = 512, 1024
X_BYTES = 4 * ROWS * WIDTH


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
    x = torch.randn(ROWS, WIDTH, device=device, requires_grad=True)

    def step():
        x.grad = None
        gelu(x).mean().backward()

    return step


@pytest.mark.claim("C11")
def test_a_backward_of_its_own_keeps_the_input_alone(gpuperf):
    result = gpuperf.compare(
        training(spelled_out, gpuperf.device),
        training(Gelu.apply, gpuperf.device),
        same_training=True,
    )

    assert result.memory.difference == -6 * X_BYTES
