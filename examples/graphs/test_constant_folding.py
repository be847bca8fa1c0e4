"""What depends on parameters alone is computed once, and memory is planned ahead."""

from __future__ import annotations

import pytest
import torch
from inductor import kernels_of, needs_compiler, operations_of, source_of
from torch import nn


pytestmark = needs_compiler


class Scaled(nn.Module):
    """The weight is scaled and its product with another one formed in each forward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(32, 32))
        self.second = nn.Parameter(torch.randn(32, 32))

    def forward(self, x):
        return x @ (self.first.sigmoid() @ self.second.tanh())


@pytest.mark.claim("C19")
def test_what_is_constant_is_computed_when_it_is_compiled(shown):
    model, x = Scaled().eval(), torch.randn(4, 32)

    before = operations_of(model, x)
    after = kernels_of(model, x, freezing=True)

    shown(before, after, "kernels")
    assert (before, after) == (4, 1)


def test_a_chain_of_layers_reuses_the_memory_of_those_before():
    model, x = nn.Sequential(*(nn.Linear(32, 32) for _ in range(8))), torch.randn(4, 32)

    source = source_of(model, x)

    results, reused = source.count("extern_kernels.addmm("), source.count("# reuse")
    assert results == 8
    assert results - reused <= 3
