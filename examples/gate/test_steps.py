"""Five training steps on a small model, each with something right that is easily lost."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def model(gpuperf):
    torch.manual_seed(0)
    layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    return nn.Sequential(*layers).to(gpuperf.device)


@pytest.fixture
def optimizer(model):
    return torch.optim.AdamW(model.parameters())


@pytest.fixture
def batch(gpuperf):
    images, labels = torch.rand(256, 64), torch.randint(10, (256,))
    return images.to(gpuperf.device), labels.to(gpuperf.device)


def train(model, optimizer, images, labels):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_the_loss_stays_on_the_gpu(gpuperf, model, optimizer, batch):
    total = torch.zeros((), device=gpuperf.device)

    def step():
        loss = train(model, optimizer, *batch)
        total.add_(loss.detach())

    gpuperf(step)


def test_images_are_copied_from_pinned_memory(gpuperf, model, optimizer, batch):
    images = torch.rand(256, 64, pin_memory=gpuperf.device == "cuda")

    def step():
        copied = images.to(gpuperf.device, non_blocking=True)
        train(model, optimizer, copied, batch[1])

    gpuperf(step)


def test_old_losses_keep_no_graph(gpuperf, model, optimizer, batch):
    losses = []

    def step():
        loss = train(model, optimizer, *batch)
        losses.append(loss.detach())

    gpuperf(step)


def test_all_images_are_scaled_at_once(gpuperf, model, batch):
    images, _ = batch

    def step():
        return model(images / images.amax(1, keepdim=True))

    gpuperf(step)


def test_sgd_needs_no_state(gpuperf, model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        return train(model, optimizer, *batch).detach()

    gpuperf(step)
