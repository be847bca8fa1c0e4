"""Collectives hide behind computation: what is left of them is exposed.

DDP reduces a bucket of gradients while the backward goes on to the next one. How much of
that is hidden, only a trace of GPUs tells; on paper it can be looked at anywhere.
"""

from __future__ import annotations

import pytest
import torch
from models.simulated import exposed_percent
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pytest_gpuperf as gpuperf


FIRST, SECOND, STEP = ["launch", 1000, 5], ["launch", 1000, 5], ["launch", 100, 5]

STEPS_THAT_DDP_TIMES = 10
"""In its first ones DDP reads its own events, eight a step, and waits for each."""


def test_on_paper_a_bucket_hides_behind_the_backward_of_the_next(shown):
    behind = exposed_percent(FIRST, SECOND, ["all_reduce", 4000], ["join"], STEP)
    beside = exposed_percent(FIRST, ["all_reduce", 4000], SECOND, ["join"], STEP)

    shown(round(behind), round(beside), "% exposed")
    assert behind == pytest.approx(27.6, abs=0.1)
    assert beside == 0


@pytest.mark.claim("P8")
@gpuperf.ranks(2)
@gpuperf.budget(syncs=0)
def test_ddp_hides_most_of_its_reductions(gpuperf):
    if gpuperf.device == "cpu":
        pytest.skip("two GPUs with NCCL show what is hidden")
    layers = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).to(
        gpuperf.device
    )
    model = DistributedDataParallel(layers)
    rows = torch.rand(2048, 4096, device=gpuperf.device)

    def step():
        model(rows).sum().backward()

    for _ in range(STEPS_THAT_DDP_TIMES):
        step()
    gpuperf(step)

    ranks = gpuperf.measurement.by_rank if gpuperf.measurement else None
    if ranks is None or not ranks.exposed_ms:
        pytest.skip("no trace of collectives: run it with --gpuperf on two GPUs")
    assert max(ranks.exposed_ms) < 0.5 * max(ranks.communication_ms)
