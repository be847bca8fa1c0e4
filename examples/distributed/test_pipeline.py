"""Half of the layers on each of two ranks, and a batch that passes in micro-batches.

GPipe sends all micro-batches forward before the first goes back. 1F1B lets each go back
as soon as it can, so that fewer of them are kept at a time.
"""

from __future__ import annotations

import pytest
import torch
from torch import distributed
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import Schedule1F1B
from torch.distributed.pipelining import ScheduleGPipe

import pytest_gpuperf as gpuperf


MICRO_BATCHES = 8
ROWS = 512


def layers():
    torch.manual_seed(0)
    pairs = (layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh()))
    return nn.Sequential(*pairs)


def loss_of(result, target):
    return (result - target).square().mean()


def pipeline(schedule, device):
    """Return this rank's half of the layers, and a step of the whole batch."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    each = len(layers()) // ranks
    part = layers()[rank * each : (rank + 1) * each].to(device)
    stage = PipelineStage(part, rank, ranks, torch.device(device))
    planned = schedule(stage, MICRO_BATCHES, loss_fn=loss_of)
    batch = torch.ones(ROWS, 64, device=device)

    def step():
        part.zero_grad()
        received = [batch] if stage.is_first else []
        planned.step(*received, target=batch if stage.is_last else None)

    return part, step


def gradients_of_all_layers(device):
    model, batch = layers().to(device), torch.ones(ROWS, 64, device=device)
    loss_of(model(batch), batch).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.claim("P5")
@gpuperf.ranks(2)
@gpuperf.budget(collectives=2 * MICRO_BATCHES, syncs=0)
def test_1f1b_keeps_fewer_micro_batches_than_gpipe(gpuperf):
    part, one_by_one = pipeline(Schedule1F1B, gpuperf.device)
    _, all_forward = pipeline(ScheduleGPipe, gpuperf.device)
    gradients = gradients_of_all_layers(gpuperf.device)

    gpuperf(all_forward)
    before = gpuperf.measurement
    gpuperf(one_by_one)
    after = gpuperf.measurement

    mine = [parameter.grad for parameter in part.parameters()]
    assert len(mine) == len(gradients) / distributed.get_world_size()
    first = distributed.get_rank() * len(mine)
    torch.testing.assert_close(mine, gradients[first : first + len(mine)])
    if before and after:
        assert max(after.by_rank.peak_bytes) < 0.8 * max(before.by_rank.peak_bytes)
