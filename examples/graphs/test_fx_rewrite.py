"""A graph as Python that Python can rewrite: a GELU is found in it and becomes one node."""

from __future__ import annotations

import pytest
import torch
from models.gelu import spelled_out
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.narrow(spelled_out(self.wide(x)))


def gelu(x):
    return F.gelu(x)


def rewritten(block):
    graph = torch.fx.symbolic_trace(block)
    found = torch.fx.replace_pattern(graph, spelled_out, gelu)
    assert len(found) == 1
    return graph


@pytest.mark.claim("G8")
def test_five_nodes_of_a_graph_become_one(gpuperf):
    block = Block().to(gpuperf.device).requires_grad_(requires_grad=False)
    x = torch.randn(8, 16, device=gpuperf.device)
    graph = rewritten(block)
    torch.testing.assert_close(block(x), graph(x), rtol=1e-4, atol=1e-5)

    result = gpuperf.compare(lambda: block(x), lambda: graph(x))

    assert result.ops.before - result.ops.after == 4


def test_a_branch_that_values_decide_cannot_be_traced():
    def branch(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(torch.fx.proxy.TraceError, match="control flow"):
        torch.fx.symbolic_trace(branch)
