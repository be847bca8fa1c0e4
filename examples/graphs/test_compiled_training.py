"""A training step, compiled: the same training, in less time once it is compiled."""

from __future__ import annotations

import pytest
import torch
from captured import Graphs
from functorch.compile import make_boxed_func
from inductor import compiled, needs_compiler
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import pytest_gpuperf as gpuperf


class Block(nn.Module):
    """Two layers with the activation of GPT-2 between them, spelled out as it was."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        hidden = self.wide(self.norm(x))
        inner = torch.tanh(0.7979 * (hidden + 0.044715 * hidden**3))
        return x + self.narrow(0.5 * hidden * (1.0 + inner))


def training(device, compile_it):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows, run = torch.randn(1024, 64, device=device), compile_it(model)

    def step():
        optimizer.zero_grad()
        loss = run(rows).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


class BothWays(Graphs):
    """All of a compiler but its kernels: it is given a graph forwards and one backwards."""

    def __call__(self, graph, inputs):
        return make_boxed_func(super().__call__(graph, inputs))

    def trace(self, model):
        backend = aot_autograd(fw_compiler=self, bw_compiler=self)
        return torch.compile(model, backend=backend)


@pytest.mark.claim("G4")
def test_a_captured_backward_trains_the_same(shown):
    graphs = BothWays()
    plain, traced = training("cpu", nn.Module.train), training("cpu", graphs.trace)

    for _ in range(3):
        torch.testing.assert_close(traced(), plain())

    shown(0, len(graphs.sizes), "graphs")
    assert len(graphs.sizes) == 2


@needs_compiler
@pytest.mark.slow
@pytest.mark.claim("G4", gate="time")
@gpuperf.tolerance(ms="1%", detect="25%")
def test_compiled_training_is_quicker(gpuperf, clock):
    result = gpuperf.compare(
        training(clock, nn.Module.train), training(clock, compiled), speedup=1.1
    )

    assert result.time.verdict != "slower"
