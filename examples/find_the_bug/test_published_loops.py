"""Two training loops as they were published, and what each repair takes out of a step.

Both read their loss in every step. The first one's "pinned" run changed three things at
once and took 19.92 s in place of 42.71 s; the second one was shown to a profiler.
"""

from __future__ import annotations

import pytest
import torch
from models.simplenet import SimpleNet
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import pytest_gpuperf as gpuperf


DIGITS = TensorDataset(torch.rand(64, 1, 28, 28), torch.randint(10, (64,)))
THREE_THINGS = {"num_workers": 1, "pin_memory": True, "non_blocking": True}
ONE_THING = {
    "nothing": ({}, (2, 2)),
    "workers": ({"num_workers": 1}, (2, 2)),
    "pinned": ({"pin_memory": True}, (2, 0)),
    "non-blocking": ({"non_blocking": True}, (0, 2)),
    "pinned and non-blocking": ({"pin_memory": True, "non_blocking": True}, (0, 0)),
}
"""What is changed, then syncs and copies from pageable memory that a step has left."""


def epoch_of(device, *, read=torch.Tensor.item, non_blocking=False, **options):
    """Return an epoch of one batch, which is one step."""
    loader = DataLoader(DIGITS, batch_size=64, **options)
    model = SimpleNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def epoch():
        total_loss = 0.0
        for batch in loader:
            images, labels = (t.to(device, non_blocking=non_blocking) for t in batch)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total_loss += read(loss)
        return total_loss / len(loader)

    return epoch


@gpuperf.budget(syncs=1, pageable_copies=0)
def test_the_run_that_changed_three_things_waits_for_its_loss_alone(gpuperf, gpu):
    result = gpuperf.compare(epoch_of(gpu), epoch_of(gpu, **THREE_THINGS))

    assert (result.syncs.before, result.syncs.after) == (3, 1)
    assert (result.copies.before, result.copies.after) == (2, 0)


@gpuperf.budget(syncs=0, pageable_copies=0)
def test_a_loss_that_stays_on_the_device_takes_the_last_wait_away(gpuperf, gpu):
    result = gpuperf.compare(
        epoch_of(gpu, **THREE_THINGS),
        epoch_of(gpu, **THREE_THINGS, read=torch.Tensor.detach),
    )

    assert (result.syncs.before, result.syncs.after) == (1, 0)


@pytest.mark.parametrize("change", ONE_THING)
def test_each_change_does_one_thing(gpuperf, gpu, change):
    options, (syncs, copies) = ONE_THING[change]

    gpuperf(
        epoch_of(gpu, read=torch.Tensor.detach, **options),
        syncs=syncs,
        pageable_copies=copies,
    )

    found = gpuperf.measurement.exact
    assert (found["syncs"], found["pageable_copies"]) == (syncs, copies)


def photographs(device):
    """Return 16 images of 224 x 224 pixels, labels, a model and its optimizer."""
    images = torch.randint(256, (16, 3, 224, 224), dtype=torch.uint8)
    labels = torch.randint(10, (16,))
    features = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(features, nn.Linear(4 * 28 * 28, 10)).to(device)
    return images, labels, model, torch.optim.Adam(model.parameters(), fused=True)


def learn(images, labels, model, optimizer):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@gpuperf.budget(syncs=3, pageable_copies=2, h2d_mb=9.2)
def test_the_step_shown_to_a_profiler_as_it_was_published(gpuperf, gpu):
    images, labels, *training = photographs(gpu)
    floats = images / 255

    gpuperf(lambda: learn(floats.to(gpu), labels.to(gpu), *training).item())

    assert gpuperf.measurement.exact["syncs"] == 3
    assert gpuperf.measurement.exact["h2d_bytes"] == floats.nbytes + labels.nbytes
    assert floats.nbytes == 9_633_792


@gpuperf.budget(syncs=0, pageable_copies=0, h2d_mb=2.3)
def test_the_step_shown_to_a_profiler_repaired(gpuperf, gpu):
    images, labels, *training = photographs(gpu)
    images, labels = images.pin_memory(), labels.pin_memory()

    def step():
        pixels = images.to(gpu, non_blocking=True) / 255
        return learn(pixels, labels.to(gpu, non_blocking=True), *training).detach()

    gpuperf(step)

    assert gpuperf.measurement.exact["h2d_bytes"] == images.nbytes + labels.nbytes
    assert images.nbytes == 2_408_448
