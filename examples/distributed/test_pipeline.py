"""Half of the layers on each of two ranks, and a batch that passes in micro-batches.

A rank waits until the first micro-batch comes to it and the last one comes back: the more
there are, the less. GPipe sends all of them forward before the first goes back. 1F1B lets
each go back as soon as it can, so that fewer of them are kept at a time.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import pytest_gpuperf as gpuperf


MICRO_BATCHES = 8
ROWS = 512
FORWARD, BACKWARD = 1, -1

LAYERS = 8
WIDTH = 64
KEPT_BYTES = LAYERS // 2 * (ROWS // MICRO_BATCHES) * WIDTH * 4
"""Of a micro-batch, on a rank, until it comes back: what left each layer."""


def layers():
    torch.manual_seed(0)
    pairs = (
        layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())
    )
    return nn.Sequential(*pairs)


def loss_of(result, target):
    return (result - target).square().mean()


def pipeline(schedule, device, micro_batches=MICRO_BATCHES):
    """Return this rank's half of the layers, and a step of the whole batch."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    each = len(layers()) // ranks
    part = layers()[rank * each : (rank + 1) * each].to(device)
    stage = PipelineStage(part, rank, ranks, torch.device(device))
    planned = schedule(stage, micro_batches, loss_fn=loss_of)
    batch = torch.ones(ROWS, WIDTH, device=device)

    def step():
        part.zero_grad()
        received = [batch] if stage.is_first else []
        planned.step(*received, target=batch if stage.is_last else None)

    return part, step


def gradients_of_all_layers(device):
    model, batch = layers().to(device), torch.ones(ROWS, WIDTH, device=device)
    loss_of(model(batch), batch).backward()
    return [parameter.grad for parameter in model.parameters()]


def passes_of(part, step):
    """Return by rank in which order micro-batches passed forward and backward there."""
    step()
    passes, by_rank = [], [None] * distributed.get_world_size()

    def note(way):
        passes.append((way, sum(way == earlier for earlier, _ in passes)))

    forward = part.register_forward_pre_hook(lambda *_: note(FORWARD))
    backward = part[0].weight.register_hook(lambda _: note(BACKWARD))
    step()
    forward.remove()
    backward.remove()
    distributed.all_gather_object(by_rank, passes)
    return by_rank


def idle_percent(by_rank):
    """Return how much of the schedule ranks wait, where each pass takes one step of it.

    A micro-batch comes forward from the rank before, and backward from the one behind.
    """

    @cache
    def end(rank, place):
        if place < 0:
            return 0
        way, number = by_rank[rank][place]
        ends, source = [end(rank, place - 1)], rank - way
        if 0 <= source < len(by_rank):
            ends.append(end(source, by_rank[source].index((way, number))))
        return max(ends) + 1

    whole = max(end(rank, len(passes) - 1) for rank, passes in enumerate(by_rank))
    return 100 * (1 - sum(map(len, by_rank)) / (whole * len(by_rank)))


@pytest.mark.claim("P5", gate="idle steps")
@gpuperf.ranks(2)
@gpuperf.budget(collectives=2 * MICRO_BATCHES, syncs=0)
def test_with_more_micro_batches_ranks_wait_for_fewer_steps(gpuperf, shown):
    part, step = pipeline(Schedule1F1B, gpuperf.device)
    at_once = passes_of(*pipeline(ScheduleGPipe, gpuperf.device, micro_batches=1))
    in_parts = passes_of(part, step)

    gpuperf(step)

    whole, less = idle_percent(at_once), idle_percent(in_parts)
    shown(round(whole), round(less), "% idle")
    others = distributed.get_world_size() - 1
    assert whole == pytest.approx(100 * others / (1 + others))
    assert less == pytest.approx(100 * others / (MICRO_BATCHES + others))


@pytest.mark.claim("P5")
@gpuperf.ranks(2)
@gpuperf.budget(collectives=2 * MICRO_BATCHES, syncs=0)
def test_1f1b_keeps_fewer_micro_batches_than_gpipe(gpuperf):
    part, one_by_one = pipeline(Schedule1F1B, gpuperf.device)
    _, all_forward = pipeline(ScheduleGPipe, gpuperf.device)
    gradients = gradients_of_all_layers(gpuperf.device)
    all_forward()  # both have their gradients and what they receive into from here on
    one_by_one()

    gpuperf(all_forward)
    before = gpuperf.measurement
    gpuperf(one_by_one)
    after = gpuperf.measurement

    mine = [parameter.grad for parameter in part.parameters()]
    assert len(mine) == len(gradients) / distributed.get_world_size()
    first = distributed.get_rank() * len(mine)
    torch.testing.assert_close(mine, gradients[first : first + len(mine)])
    if before and after and gpuperf.device == "cuda":
        saved = max(before.by_rank.peak_bytes) - max(after.by_rank.peak_bytes)
        # a rank keeps one for each rank; besides, one goes forward and one comes back
        fewer = MICRO_BATCHES - distributed.get_world_size() - 2
        assert saved > fewer * KEPT_BYTES
