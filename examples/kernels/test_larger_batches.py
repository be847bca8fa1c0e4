"""256 samples in batches of 4 or of 64: as much arithmetic, a sixteenth of the launches."""

from __future__ import annotations

import pytest
import torch
from models.simplenet import SimpleNet
from torch.nn import functional as F


def epoch(device, batch):
    model = SimpleNet(hidden=32).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.rand(256, 28 * 28, device=device)
    labels = torch.randint(10, (256,), device=device)

    def step():
        for part, wanted in zip(images.split(batch), labels.split(batch), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(part), wanted).backward()
            optimizer.step()

    return step


@pytest.mark.claim("C3")
def test_a_larger_batch_launches_less_for_as_many_samples(gpuperf):
    result = gpuperf.compare(epoch(gpuperf.device, 4), epoch(gpuperf.device, 64))

    assert result.ops.before == 16 * result.ops.after
