"""A recurrent network and a branch, compiled without a change of the code.

The loop over a sequence is unrolled into the graph. A branch that the shape decides costs
nothing; one that a tensor's value decides splits the graph, and both ways stay right.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 16)

    def forward(self, sequence):
        state = sequence.new_zeros(sequence.shape[1], 16)
        for step in sequence:
            state = self.cell(step, state)
        return state


class Branching(Recurrent):
    def forward(self, sequence):
        state = super().forward(sequence)
        if state.sum() > 0:
            return state * 2
        return -state


def compiled_and_right(module, sequence):
    module.requires_grad_(requires_grad=False)
    compiled = torch.compile(module, backend="aot_eager")
    torch.testing.assert_close(compiled(sequence), module(sequence))
    return lambda: compiled(sequence)


@pytest.mark.claim("G15")
@gpuperf.budget(graph_breaks=0, recompiles=0)
def test_a_recurrent_network_is_one_graph_and_a_branch_splits_it(gpuperf):
    torch.manual_seed(0)
    sequence = torch.rand(6, 4, 8, device=gpuperf.device)
    branching = compiled_and_right(Branching().to(gpuperf.device), sequence)
    recurrent = compiled_and_right(Recurrent().to(gpuperf.device), sequence)

    result = gpuperf.compare(branching, recurrent)

    assert result.syncs.before > result.syncs.after == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches_are_right(sign):
    torch.manual_seed(0)
    module = Branching()
    for weights in module.requires_grad_(requires_grad=False).parameters():
        weights.fill_(sign)

    compiled_and_right(module, torch.rand(6, 4, 8))
