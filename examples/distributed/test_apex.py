"""What apex brought is in PyTorch today: mixed precision, replicas, and their statistics.

``apex.amp`` is ``torch.autocast`` and ``torch.amp.GradScaler``, ``apex.parallel`` is
``DistributedDataParallel`` and ``SyncBatchNorm``, which runs on GPUs only.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import pytest_gpuperf as gpuperf


pytestmark = gpuperf.ranks(2)
ROWS = 32


@pytest.fixture(autouse=True)
def same_layers():
    """Draw the same weights in each rank."""
    torch.manual_seed(0)


def share_of(batch):
    return batch.chunk(distributed.get_world_size())[distributed.get_rank()]


def batch_and_layers(device, *layers):
    return torch.randn(ROWS, 64).to(device), nn.Sequential(*layers).to(device)


def loss_in_bfloat16(model, rows):
    with torch.autocast(rows.device.type, dtype=torch.bfloat16):
        result = model(rows)
    assert result.dtype == torch.bfloat16
    return result.float().square().mean()


@pytest.mark.claim("C20")
@gpuperf.budget(collectives=1, syncs=0)
def test_replicas_in_mixed_precision_have_the_gradients_of_one_model(gpuperf):
    batch, whole = batch_and_layers(
        gpuperf.device, nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    replica = DistributedDataParallel(copy.deepcopy(whole))
    rows = share_of(batch)

    def step():
        replica.zero_grad()
        loss_in_bfloat16(replica, rows).backward()

    gpuperf(step)

    loss_in_bfloat16(whole, batch).backward()
    for one, all_ranks in zip(whole.parameters(), replica.parameters(), strict=True):
        torch.testing.assert_close(one.grad, all_ranks.grad, rtol=0.02, atol=1e-3)


# a rank without rows is left out by a mask, which each of three tensors is read for
@gpuperf.budget(syncs=3)
def test_replicas_normalise_by_the_statistics_of_the_whole_batch(gpuperf):
    if gpuperf.device == "cpu":
        pytest.skip("SyncBatchNorm shares statistics between GPUs")
    batch, whole = batch_and_layers(
        gpuperf.device, nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 10)
    )
    replica = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    replica = DistributedDataParallel(replica)
    rows = share_of(batch)

    gpuperf(lambda: replica(rows).square().mean().backward())

    torch.testing.assert_close(replica(rows), share_of(whole(batch)))
