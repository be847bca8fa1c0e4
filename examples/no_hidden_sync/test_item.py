"""The loss as a number, in every step: 80 -> 57 ms and a GPU 61 -> 96 % busy, as published.

``item()`` waits until the step is through. Only then does the host prepare the next one,
and meanwhile the GPU has nothing to do.
"""

from __future__ import annotations

import pytest
import torch
from models.simplemodel import SimpleModel
from torch.nn import functional as F

import pytest_gpuperf as gpuperf


def step_that(reads, device, image_size=32, channels=16):
    model = SimpleModel(image_size, channels).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    images = torch.randn(16, 3, image_size, image_size, device=device)
    labels = torch.randint(10, (16,), device=device)

    def step():
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return reads(loss)

    return step


@pytest.mark.claim("Y1")
@gpuperf.budget(syncs=0)
def test_a_loss_left_on_the_device_takes_the_wait_out_of_the_step(gpuperf):
    result = gpuperf.compare(
        step_that(torch.Tensor.item, gpuperf.device),
        step_that(torch.Tensor.detach, gpuperf.device),
    )

    assert (result.syncs.before, result.syncs.after) == (1, 0)


@pytest.mark.claim("Y1")
@gpuperf.budget(busy_pct=85, syncs=0)
def test_without_the_wait_the_gpu_of_the_published_step_is_busy(gpuperf, real_gpu):
    step = step_that(torch.Tensor.detach, real_gpu, image_size=224, channels=128)

    gpuperf(step)
