"""One training step on two ranks: replicated by DDP, and sharded by FSDP.

The collectives are those that torch documents: DDP reduces its gradients once a bucket,
FSDP gathers each sharded layer in the forward and in the backward and scatters its
gradients once. A plain ``pytest`` executes each test as the only rank.
"""

import pytest
import torch
from torch import distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pytest_gpuperf as gpuperf


pytestmark = gpuperf.ranks(2)


def layers(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    return model.to(device)


def loss_of(model, device):
    """Return a loss on rows that no other rank has."""
    torch.manual_seed(1 + distributed.get_rank())
    rows = torch.randn(64, 256).to(device)
    return lambda: model(rows).square().mean()


def step_of(model, device):
    loss = loss_of(model, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def averaged(tensor):
    summed = tensor.detach().clone()
    distributed.all_reduce(summed)
    return summed / distributed.get_world_size()


@pytest.mark.claim("P1")
@gpuperf.budget(collectives=1, syncs=0)
def test_replicated_step(gpuperf):
    model = DistributedDataParallel(layers(gpuperf.device))

    gpuperf(step_of(model, gpuperf.device))

    for parameter in model.parameters():
        torch.testing.assert_close(parameter.grad, averaged(parameter.grad))


@pytest.mark.claim("P2")
@gpuperf.budget(collectives=6, syncs=0)
def test_sharded_step(gpuperf):
    whole, model = layers(gpuperf.device), layers(gpuperf.device)
    mesh = init_device_mesh(gpuperf.device, (distributed.get_world_size(),))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    for one in (whole, model):
        loss_of(one, gpuperf.device)().backward()
    for sharded, parameter in zip(model.parameters(), whole.parameters(), strict=True):
        gradient = sharded.grad.full_tensor()
        torch.testing.assert_close(gradient, averaged(parameter.grad))

    gpuperf(step_of(model, gpuperf.device))


@pytest.mark.claim("P9")
@gpuperf.budget(collectives=1, syncs=0)
def test_micro_batches_reduce_their_gradients_once(gpuperf):
    model = DistributedDataParallel(layers(gpuperf.device))
    loss = loss_of(model, gpuperf.device)

    def step():
        model.zero_grad()
        with model.no_sync():
            loss().backward()
        loss().backward()

    gpuperf(step)


@pytest.mark.claim("P6")
@gpuperf.budget(collectives=0, syncs=0)
def test_an_architecture_a_rank_shares_nothing(gpuperf):
    gpuperf(step_of(layers(gpuperf.device), gpuperf.device))
