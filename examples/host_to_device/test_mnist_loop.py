"""A small MLP on images of MNIST's shape that come from a DataLoader."""

from __future__ import annotations

import torch
from models.simplenet import SimpleNet
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import pytest_gpuperf as gpuperf


BATCH = 64

# Cores that are shared with other work vary too much for the default of 1 %.
pytestmark = [] if torch.cuda.is_available() else [gpuperf.tolerance(ms="50%")]


class Digits(Dataset):
    """Random images that stay in memory."""

    def __init__(self, count=1024):
        self.images = torch.rand(count, 1, 28, 28)
        self.labels = torch.randint(10, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return normal(self.images[index]), self.labels[index]


def normal(image):
    """Move brightness from [0, 1] to [-1, 1]."""
    return (image - 0.5) / 0.5


def batches(device):
    """Yield batches on *device* for ever.

    A copy to a GPU lets the host go on only if it starts from pinned memory.
    """
    loader = DataLoader(
        Digits(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        pin_memory=device == "cuda",
    )
    while True:
        for images, labels in loader:
            yield (
                images.to(device, non_blocking=True),
                labels.to(device, non_blocking=True),
            )


class Training:
    """A model and its optimizer on one device."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = SimpleNet().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, images, labels):
        loss = F.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@gpuperf.budget(syncs=0)
def test_loop_with_its_loader(gpuperf):
    training = Training(gpuperf.device)
    stream = batches(gpuperf.device)

    loss = gpuperf(lambda: training.step(*next(stream)))

    assert loss.item() > 0


# ``setup`` gives each step a fresh batch that is not part of the measurement.
@gpuperf.budget(syncs=0)
def test_step_without_its_loader(gpuperf):
    training = Training(gpuperf.device)
    stream = batches(gpuperf.device)

    loss = gpuperf(training.step, setup=lambda: next(stream))

    assert loss.item() > 0
