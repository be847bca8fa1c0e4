"""A small CNN on images of CIFAR-10's shape: a loop that waits, and one that does not.

Many published loops add ``loss.item()`` to a running sum after every step. On a GPU
the host then waits until the step is through before it enqueues the next one.
"""

from __future__ import annotations

import torch
from models.simplemodel import SimpleModel
from torch.nn import functional as F

import pytest_gpuperf as gpuperf


BATCH = 16

# Cores that are shared with other work vary too much for the default of 1 %.
pytestmark = [] if torch.cuda.is_available() else [gpuperf.tolerance(ms="50%")]


class Training:
    """A model, its optimizer and a batch of images, all on one device."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = SimpleModel().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001)
        self.images = torch.randn(BATCH, 3, 32, 32, device=device)
        self.labels = torch.randint(10, (BATCH,), device=device)

    def step(self):
        loss = F.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


# As published: one sync a step is its price. The budget keeps a second one out.
@gpuperf.budget(syncs=1)
def test_loop_that_reads_its_loss(gpuperf):
    training = Training(gpuperf.device)
    epoch_loss = 0.0

    def step():
        nonlocal epoch_loss
        epoch_loss += training.step().item()

    gpuperf(step)

    assert epoch_loss > 0


# Fixed: the sum stays on the device and is read once, when the epoch is over.
@gpuperf.budget(syncs=0)
def test_loop_that_keeps_its_loss_on_the_device(gpuperf):
    training = Training(gpuperf.device)
    epoch_loss = torch.zeros((), device=gpuperf.device)

    def step():
        nonlocal epoch_loss
        epoch_loss += training.step().detach()

    gpuperf(step)

    assert epoch_loss.item() > 0
