"""One layer on two ranks: each has half of its columns, or half of its rows.

A layer that is split by columns gives each rank half of the result, which an all-gather
makes whole. If the next layer is split by rows, the halves need not be gathered: one
all-reduce adds up what comes out.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import pytest_gpuperf as gpuperf


def split(model, plan, device):
    mesh = init_device_mesh(device, (distributed.get_world_size(),))
    return parallelize_module(copy.deepcopy(model), mesh, plan)


def share_of(part, whole):
    """Return how much of the weights of *whole* this rank has in *part*."""
    kept = sum(p.to_local().nbytes for p in part.parameters() if p.ndim > 1)
    return kept / sum(p.nbytes for p in whole.parameters() if p.ndim > 1)


@pytest.mark.claim("P4")
@gpuperf.ranks(2)
@gpuperf.budget(collectives=1, syncs=0)
def test_a_layer_is_split_by_columns_and_the_next_one_by_rows(gpuperf):
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    whole, rows = whole.to(gpuperf.device), torch.randn(16, 64).to(gpuperf.device)
    linear = whole[0]
    gathering = {"": ColwiseParallel(output_layouts=Replicate())}
    columns = split(linear, gathering, gpuperf.device)
    summing = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    halves = split(whole, summing, gpuperf.device)

    with torch.no_grad():
        torch.testing.assert_close(columns(rows), linear(rows))
        torch.testing.assert_close(halves(rows), whole(rows))
        # read, as a training step would: what nobody reads nobody has waited for
        gpuperf(lambda: whole(rows).sum())
        gpuperf(lambda: columns(rows).sum())
        gpuperf(lambda: halves(rows).sum())

    each = 1 / distributed.get_world_size()
    assert share_of(columns, linear) == share_of(halves, whole) == each
