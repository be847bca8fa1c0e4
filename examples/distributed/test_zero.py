"""ZeRO: a rank keeps the state of the optimizer for its share of the parameters only.

Adam has two numbers for each parameter. Two ranks that share them keep one each, at the
price of telling each other the parameters that they updated.
"""

from __future__ import annotations

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import pytest_gpuperf as gpuperf


def replicated(device):
    torch.manual_seed(0)
    layers = (layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.ReLU()))
    return DistributedDataParallel(nn.Sequential(*layers).to(device))


def step_of(model, optimizer, rows):
    def step():
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    return step


def state_bytes(optimizer):
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    )


def zero(parameters, optimizer_class, **options):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of torch.jit

    return ZeroRedundancyOptimizer(parameters, optimizer_class, **options)


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.claim("P3")
@gpuperf.ranks(2)
@gpuperf.budget(syncs=0)
def test_each_rank_keeps_its_share_of_the_state(gpuperf):
    rows = torch.randn(16, 128, device=gpuperf.device)
    whole, shared = replicated(gpuperf.device), replicated(gpuperf.device)
    all_state = torch.optim.AdamW(whole.parameters(), lr=0.01)
    a_share = zero(shared.parameters(), torch.optim.AdamW, lr=0.01)
    before = step_of(whole, all_state, rows)
    after = step_of(shared, a_share, rows)
    before()
    after()
    for one, other in zip(whole.parameters(), shared.parameters(), strict=True):
        torch.testing.assert_close(one, other)

    gpuperf(before)
    gpuperf(after)

    share = state_bytes(a_share.optim) / state_bytes(all_state)
    assert share == pytest.approx(1 / distributed.get_world_size(), abs=0.01)
