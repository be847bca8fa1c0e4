"""A trainer that a project wrote itself: its steps end where its optimizer has made one."""

from __future__ import annotations

import torch
from torch import nn

import pytest_gpuperf as gpuperf


class Trainer:
    """Trains for *steps* steps, and logs the loss every *log_every* of them."""

    def __init__(self, device, *, steps, log_every):
        self.device = device
        self.steps, self.log_every = steps, log_every
        self.model = nn.Linear(64, 10).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.rows = torch.rand(16, 64, device=device)
        self.logged = []

    def train(self):
        for step in range(1, self.steps + 1):
            loss = self.model(self.rows).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if step % self.log_every == 0:
                self.logged.append(loss.item())


@gpuperf.budget(syncs=1)
def test_a_loss_that_is_logged_at_each_step_is_waited_for(gpuperf):
    gpuperf.trainer(Trainer(gpuperf.device, steps=10**6, log_every=1))


@gpuperf.budget(syncs=0)
def test_a_loss_that_stays_on_the_gpu_is_not(gpuperf):
    gpuperf.trainer(Trainer(gpuperf.device, steps=10**6, log_every=10**6), samples=16)
