"""A whole training step as one compiled graph: model, loss and activation together.

Nothing in the code changes. To compile the loss alone, as the note has it, saves little: it
is a few operations of the many, and a graph of its own.
"""

from __future__ import annotations

import pytest
import torch
from captured import Graphs
from torch import nn

import pytest_gpuperf as gpuperf


def parts(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)).to(device)
    return (
        model,
        torch.rand(16, 32, device=device),
        torch.arange(16, device=device) % 10,
    )


def loss_of(model, rows, labels):
    return nn.functional.cross_entropy(model(rows), labels)


@pytest.mark.claim("G9")
@gpuperf.budget(graph_breaks=0, recompiles=0, syncs=0)
def test_a_training_step_is_captured_without_a_change_of_the_code(gpuperf):
    model, rows, labels = parts(gpuperf.device)
    compiled = torch.compile(loss_of, backend=(graphs := Graphs()))

    def step():
        model.zero_grad()
        loss = compiled(model, rows, labels)
        loss.backward()
        return loss

    torch.testing.assert_close(gpuperf(step), loss_of(model, rows, labels))

    if gpuperf.device == "cpu":
        assert graphs.sizes == [4]  # linear, GELU, linear, loss


@pytest.mark.claim("C16")
def test_a_loss_is_one_operation_of_the_step_it_is_compiled_with(shown):
    model, rows, labels = parts("cpu")
    alone, whole = Graphs(), Graphs()

    guess = model(rows).detach()
    torch.compile(nn.functional.cross_entropy, backend=alone)(guess, labels)
    torch.compile(loss_of, backend=whole)(model, rows, labels)

    shown(whole.sizes[0] - alone.sizes[0], 0, "eager ops")
    assert (alone.sizes, whole.sizes) == ([1], [4])  # all of the step is in the second
