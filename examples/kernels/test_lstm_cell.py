"""The gates of an LSTM cell, 3 samples of 10 numbers and 20 hidden ones.

The note prints its TorchScript graph, which is deprecated: Inductor makes two matrix
products and one kernel of it today, and ``nn.LSTMCell`` has a kernel for the gates.
"""

from __future__ import annotations

import pytest
import torch
from inductor import kernels_of, needs_compiler, operations_of
from torch import nn


def cell(device="cpu"):
    torch.manual_seed(0)
    return nn.LSTMCell(10, 20).to(device).requires_grad_(requires_grad=False)


def inputs(device="cpu"):
    return [torch.randn(3, size, device=device) for size in (10, 20, 20)]


def gates_of(weights):
    def spelled_out(x, hidden, state):
        gates = x @ weights.weight_ih.t() + weights.bias_ih
        gates = gates + (hidden @ weights.weight_hh.t() + weights.bias_hh)
        enter, forget, new, leave = gates.chunk(4, 1)
        state = forget.sigmoid() * state + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * state.tanh()

    return spelled_out


@needs_compiler
@pytest.mark.claim("C12")
def test_the_gates_of_a_cell_become_one_kernel(shown):
    spelled_out, parts = gates_of(cell()), inputs()
    before, after = operations_of(spelled_out, *parts), kernels_of(spelled_out, *parts)

    shown(before, after, "kernels")
    assert (before, after) == (14, 3)  # two of the three are matrix products


def test_torch_has_the_whole_cell(gpuperf):
    module, parts = cell(gpuperf.device), inputs(gpuperf.device)
    spelled_out, whole = gates_of(module), lambda x, h, c: module(x, (h, c))[0]
    torch.testing.assert_close(spelled_out(*parts), whole(*parts))

    result = gpuperf.compare(lambda: spelled_out(*parts), lambda: whole(*parts))

    assert result.ops.after < result.ops.before
