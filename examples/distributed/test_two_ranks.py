"""One training step on two ranks: replicated by DDP, sharded by FSDP, or each its own.

The collectives are those that torch documents: DDP reduces its gradients once a bucket,
FSDP gathers each sharded layer in the forward and in the backward and scatters its
gradients once. A plain ``pytest`` executes each test as the only rank.
"""

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import pytest_gpuperf as gpuperf


pytestmark = gpuperf.ranks(2)

SMALL = (192, 512, 10)
DEEP = 9 * (192,)
LAYERS = len(DEEP) - 1
LAYER_BYTES = 4 * (192 * 192 + 192)


def model_of(widths, device):
    torch.manual_seed(0)
    linears = map(nn.Linear, widths[:-1], widths[1:])
    layers = (layer for linear in linears for layer in (linear, nn.Tanh()))
    return nn.Sequential(*layers).to(device)


def batch_of_all_ranks(device):
    torch.manual_seed(1)
    return torch.randn(64, 192).to(device)


def share_of(batch):
    return batch.chunk(distributed.get_world_size())[distributed.get_rank()]


def loss_of(model, rows):
    return model(rows).square().mean()


def step_of(model, rows, optimizer):
    def step():
        optimizer.zero_grad()
        loss_of(model, rows).backward()
        optimizer.step()

    return step


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def adam(model):
    return torch.optim.Adam(model.parameters(), foreach=False)


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def require_gradients_of_one_model(model, widths, batch):
    """Compare with one model that has the rows of all ranks."""
    one = model_of(widths, batch.device)
    loss_of(one, batch).backward()
    for whole, mine in zip(one.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(full(mine.grad), whole.grad)


def require_collectives(measurement, **calls):
    if measurement:
        found = measurement.by_rank.collectives
        assert {collective.kind: collective.calls for collective in found} == calls


def rank_peak(measurement):
    return measurement.exact["rank_peak_bytes"]


@pytest.mark.claim("P1")
@gpuperf.budget(collectives=1, syncs=0)
def test_replicated_step(gpuperf):
    batch = batch_of_all_ranks(gpuperf.device)
    model = DistributedDataParallel(model_of(SMALL, gpuperf.device))
    step = step_of(model, share_of(batch), sgd(model))

    step()
    require_gradients_of_one_model(model, SMALL, batch)

    gpuperf(step)
    require_collectives(gpuperf.measurement, all_reduce=1)


@pytest.mark.claim("P9")
@gpuperf.budget(collectives=1, syncs=0)
def test_micro_batches_reduce_their_gradients_once(gpuperf):
    batch = batch_of_all_ranks(gpuperf.device)
    model = DistributedDataParallel(model_of(SMALL, gpuperf.device))
    first, second = share_of(batch).chunk(2)

    def step():
        model.zero_grad()
        with model.no_sync():
            (loss_of(model, first) / 2).backward()
        (loss_of(model, second) / 2).backward()

    gpuperf(step)

    require_gradients_of_one_model(model, SMALL, batch)
    require_collectives(gpuperf.measurement, all_reduce=1)


def shard(model):
    """Let FSDP gather a layer at a time."""
    ranks = distributed.get_world_size()
    mesh = init_device_mesh(next(model.parameters()).device.type, (ranks,))
    for part in (*model[::2], model):
        fully_shard(part, mesh=mesh)


def kept_bytes(optimizer):
    """Return what a rank has of parameters, of gradients and of what Adam keeps."""
    state = optimizer.state
    kept = (
        tensor
        for weight in state
        for tensor in (weight, weight.grad, *state[weight].values())
        if tensor.ndim
    )
    return sum(
        t.to_local().nbytes if isinstance(t, DTensor) else t.nbytes for t in kept
    )


def measured_alone(gpuperf, model, batch):
    """Return what a rank keeps of *model*, and its measurement: nothing else is there."""
    optimizer = adam(model)
    step = step_of(model, share_of(batch), optimizer)
    gpuperf(step)
    return kept_bytes(optimizer), gpuperf.measurement


@pytest.mark.claim("P2")
@pytest.mark.claim("P6")
@gpuperf.budget(collectives=3 * LAYERS, syncs=0)
def test_sharded_step(gpuperf):
    batch, ranks = batch_of_all_ranks(gpuperf.device), distributed.get_world_size()
    whole, before = measured_alone(gpuperf, model_of(DEEP, gpuperf.device), batch)
    sharded = model_of(DEEP, gpuperf.device)
    shard(sharded)
    loss_of(sharded, share_of(batch)).backward()
    require_gradients_of_one_model(sharded, DEEP, batch)

    share, after = measured_alone(gpuperf, sharded, batch)

    assert share == whole / ranks
    require_collectives(after, all_gather=2 * LAYERS, reduce_scatter=LAYERS)
    if before and gpuperf.device == "cuda":
        # what is gathered beside it: a layer, the next one, and the gradient of one
        least = whole - share - 3 * LAYER_BYTES
        assert rank_peak(before) - rank_peak(after) > least


@pytest.mark.claim("P6")
@gpuperf.budget(collectives=0, syncs=0)
def test_an_architecture_a_rank_shares_nothing(gpuperf):
    batch, rank = batch_of_all_ranks(gpuperf.device), distributed.get_rank()
    model = model_of((192, 64 * (1 + rank), 10), gpuperf.device)
    loss = loss_of(model, batch).item()

    gpuperf(step_of(model, batch, sgd(model)))

    trained = [None] * distributed.get_world_size()
    result = (model[0].out_features, loss_of(model, batch).item() < loss)
    distributed.all_gather_object(trained, result)
    assert trained == [(64 * (1 + number), True) for number in range(len(trained))]
    require_collectives(gpuperf.measurement)
