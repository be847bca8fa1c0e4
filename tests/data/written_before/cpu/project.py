"""Training steps of torch; ``READ`` is what the later run changes."""

import os

import torch

import pytest_gpuperf as gpuperf


READ = "READ" in os.environ


def training(device, batch=32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch, 256, device=device)
    y = torch.randint(10, (batch,), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@gpuperf.budget(syncs=0, ms=1e6, mem_mb=64)
def test_same(gpuperf):
    gpuperf(training(gpuperf.device))


def test_reads_its_loss(gpuperf):
    step = training(gpuperf.device)

    def logged():
        loss = step()
        return loss.item() if READ else loss

    gpuperf(logged)
