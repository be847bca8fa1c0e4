"""A recurrent network and a branch, compiled without a change of the code.

The loop over a sequence is unrolled into the graph. A branch that the shape decides costs
nothing; one that a tensor's value decides splits the graph, and both ways stay right.
"""

from __future__ import annotations

import pytest
import torch
from captured import Graphs
from torch import nn


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


def graphs_of(module):
    """Count the graphs of a module that gives the same compiled as it is."""
    torch._dynamo.reset()  # noqa: SLF001, there is no public one
    module.requires_grad_(requires_grad=False)
    compiled = torch.compile(module, backend=(graphs := Graphs()))
    sequence = torch.rand(6, 4, 8)
    torch.testing.assert_close(compiled(sequence), module(sequence))
    return len(graphs.sizes)


@pytest.mark.claim("G15")
def test_a_recurrent_network_is_one_graph_and_a_branch_splits_it(shown):
    torch.manual_seed(0)

    branching, recurrent = graphs_of(Branching()), graphs_of(Recurrent())

    shown(branching, recurrent, "graphs")
    assert (branching, recurrent) == (2, 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches_are_right(sign):
    module = Branching()
    for weights in module.parameters():
        nn.init.constant_(weights, sign)

    assert graphs_of(module) == 2
