"""Activations or the optimizer's state on the host: less memory, and copies both ways."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu

import pytest_gpuperf as gpuperf


LAYERS = 8
RESULT = 4 * 2**20
"""Bytes of the result of a layer."""

save_on_pinned_host = partial(save_on_cpu, pin_memory=True)


def training(device, keeping):
    model = nn.Sequential(*(nn.Tanh() for _ in range(LAYERS)))
    rows = torch.linspace(-1, 1, 2**20, device=device, requires_grad=True)

    def step():
        rows.grad = None
        with keeping():
            total = model(rows).sum()
        total.backward()

    return step


def require_copied(measurement, size):
    """Demand that *size* bytes go to the host in a step and as many come back."""
    if measurement:
        exact = measurement.exact
        assert (exact["d2h_bytes"], exact["h2d_bytes"]) == (size, size)


@pytest.mark.claim("M10")
def test_activations_can_wait_on_the_host(gpuperf, gpu):
    result = gpuperf.compare(
        training(gpu, nullcontext),
        training(gpu, save_on_pinned_host),
        same_training=True,
    )

    # of all results two are left: what a layer reads and what it writes
    assert result.memory.difference <= -(LAYERS - 2) * RESULT
    assert result.copies.after == 0


@pytest.mark.claim("M10", gate="copied bytes")
@gpuperf.budget(h2d_mb=32, pageable_copies=0)
def test_each_activation_goes_there_and_comes_back_once(gpuperf, gpu):
    gpuperf(training(gpu, save_on_pinned_host))

    require_copied(gpuperf.measurement, LAYERS * RESULT)


WEIGHTS_MIB = 8


def adam_on_the_device(weights):
    return torch.optim.Adam(weights, foreach=True).step


def adam_on_the_host(weights):
    """Gradients go there and weights come back; what Adam keeps stays there."""
    copies = [weight.detach().cpu().requires_grad_() for weight in weights]
    optimizer = torch.optim.Adam(copies, foreach=True)

    @torch.no_grad()
    def update():
        for weight, copy in zip(weights, copies, strict=True):
            weight.grad, copy.grad = None, weight.grad.cpu()
        optimizer.step()
        for weight, copy in zip(weights, copies, strict=True):
            weight.copy_(copy)

    return update


def updated(device, adam):
    torch.manual_seed(0)
    layers = (nn.Linear(512, 512, bias=False) for _ in range(8))
    model = nn.Sequential(*layers).to(device)
    rows = torch.rand(16, 512, device=device)
    update = adam(list(model.parameters()))

    def step():
        model.zero_grad()
        model(rows).square().mean().backward()
        update()

    return step


NEEDED_MIB = 112


@pytest.mark.claim("M9")
def test_the_state_of_the_optimizer_can_stay_on_the_host(gpuperf, gpu):
    gpuperf(updated(gpu, adam_on_the_device), mem_mb=NEEDED_MIB)
    gpuperf(updated(gpu, adam_on_the_host), mem_mb=NEEDED_MIB - 2 * WEIGHTS_MIB)


@pytest.mark.claim("M9", gate="copies")
def test_its_gradients_go_there_and_its_weights_come_back(gpuperf, gpu):
    result = gpuperf.compare(
        updated(gpu, adam_on_the_device),
        updated(gpu, adam_on_the_host),
        same_training=True,
    )

    assert (result.copies.before, result.copies.after) == (0, 16)


@pytest.mark.claim("M9", gate="copied bytes")
@gpuperf.budget(h2d_mb=WEIGHTS_MIB)
def test_nothing_else_is_copied(gpuperf, gpu):
    gpuperf(updated(gpu, adam_on_the_host))

    require_copied(gpuperf.measurement, WEIGHTS_MIB * 2**20)
