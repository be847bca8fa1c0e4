"""One rank of several on the simulated GPU: what its own tensors take, and no more.

The bytes are counted by hand from what FSDP2 and DTensor hold at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")
distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available():
    pytest.skip("torch without process groups", allow_module_level=True)

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.errors import NeedsGpuError
from pytest_gpuperf.devices.simulated.memory_watch import MemoryAudit, watching_memory
from pytest_gpuperf.devices.simulated.tensor_values import BACKING
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.measure.emulated import SEVERAL_STREAMS, predict_memory
from pytest_gpuperf.measure.step import Subject


KIB, MIB = 2**10, 2**20

RANKS = 4
EPS = 1e-5


@pytest.fixture(params=[True, False], ids=["values", "sizes"])
def _gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    with simulated_gpu(values=request.param):
        yield


@pytest.fixture
def mesh(_gpu: None) -> Iterator[Any]:
    """Four ranks, of which there is the first."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield init_device_mesh("cuda", (RANKS,))
    distributed.destroy_process_group()


@pytest.fixture
def _alone(_gpu: None) -> Iterator[None]:
    """One rank, by the backend that CUDA code asks for."""
    distributed.init_process_group(
        "nccl",
        store=distributed.HashStore(),
        rank=0,
        world_size=1,
        device_id=torch.device("cuda:0"),
    )
    yield
    distributed.destroy_process_group()


def steady(
    build: Callable[[], Callable[[], object]],
) -> tuple[float, float, MemoryAudit]:
    """MiB at the peak and at the end of the second step of what *build* makes."""
    with watching_memory(0, from_now=True) as audit:
        step = build()
        audit.step(step)
        audit.step(step)
    memory = audit.memories()[1]
    return memory.allocated_bytes / MIB, memory.end_bytes / MIB, audit


def test_a_sharded_tensor_takes_its_own_part_and_is_on_the_gpu(mesh: Any) -> None:
    with watching_memory(0, from_now=True) as audit:
        whole = torch.ones(1024, 1024, device="cuda")
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        del whole

    assert sharded.device == torch.device("cuda:0")
    assert sharded.is_cuda
    assert sharded.to_local().shape == (256, 1024)
    assert audit.live.now_bytes == 1 * MIB


def test_sharded_parameters_are_updated_by_foreach_as_on_a_gpu(mesh: Any) -> None:
    def build() -> Callable[[], object]:
        whole = torch.ones(1024, 1024, device="cuda")
        weight = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
        optimizer = torch.optim.AdamW([weight])

        def step() -> None:
            weight.grad = torch.zeros_like(weight)
            optimizer.step()
            weight.grad = None

        return step

    peak, end, audit = steady(build)

    ops = [event.op for event in audit.events if event.is_birth]
    assert "aten::_foreach_sqrt" in ops
    # a weight, its gradient, two moments, their root
    assert peak == 5
    assert end == 3


def test_fully_sharded_layers_are_gathered_one_ahead(mesh: Any) -> None:
    def build() -> Callable[[], object]:
        layers = (nn.Linear(1024, 1024, bias=False) for _ in range(4))
        model = nn.Sequential(*layers).cuda()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        batch = torch.ones(16, 1024, device="cuda")

        def step() -> None:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

        return step

    peak, end, audit = steady(build)

    # shards 4 and moments 8; a reduced gradient 1 and what it was reduced from 4; a
    # layer as it was gathered 4, another in its place 4 with its shard to be sent 1,
    # and its gradient 4; the batch and what the layers before and after made of it
    assert peak - 30 == 4 * 64 * KIB / MIB + 1 * KIB / MIB
    # shards, gradients, moments; the batch
    assert end == 16 + 64 * KIB / MIB
    assert audit.live.unchecked == {}


@pytest.mark.usefixtures("_gpu")
def test_a_mesh_of_no_group_is_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_PORT", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    try:
        mesh = init_device_mesh("cuda", (1,))
        spread = distribute_tensor(torch.ones(4, device="cuda"), mesh, [Shard(0)])
        layer = fully_shard(nn.Linear(4, 4).cuda())
        assert layer(spread.full_tensor().view(1, 4)).is_cuda
    finally:
        distributed.destroy_process_group()


def test_layers_of_a_tensor_parallel_block_hold_a_part_each(mesh: Any) -> None:
    block = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(block, mesh, plan)

    out = block(torch.ones(8, 256, device="cuda"))
    out.sum().backward()

    assert out.shape == (8, 256)
    assert block[0].weight.grad.to_local().shape == (256, 256)
    assert block[2].weight.grad.to_local().shape == (256, 256)


@pytest.mark.usefixtures("_alone")
@pytest.mark.filterwarnings("ignore")
def test_replicas_have_a_bucket_for_their_gradients() -> None:
    def build() -> Callable[[], object]:
        layer = nn.Linear(1024, 1024, bias=False).cuda()
        model = nn.parallel.DistributedDataParallel(layer, device_ids=[0])
        batch = torch.ones(8, 1024, device="cuda")

        def step() -> None:
            model.zero_grad()
            model(batch).sum().backward()

        return step

    if not BACKING.has_values:
        with pytest.raises(NeedsGpuError) as caught:
            steady(build)
        assert caught.value.error_id is ErrorId.GP308
        return
    peak, end, audit = steady(build)
    # the weight, its gradient, the bucket; the batch
    assert end == 12 + 32 * KIB / MIB
    # the loss and its gradient; that of the batch in one piece, as cuBLAS takes it
    assert peak == end + 1 * KIB / MIB + 32 * KIB / MIB
    assert audit.live.unchecked == {}


@pytest.mark.usefixtures("_gpu")
def test_what_another_stream_uses_leaves_reserved_memory_unchecked() -> None:
    aside, batch = torch.cuda.Stream(), torch.zeros(1024)

    def step() -> None:
        with torch.cuda.stream(aside):
            moved = batch.to("cuda", non_blocking=True)
        moved.record_stream(torch.cuda.current_stream())

    with watching_memory(0) as audit:
        audit.step(step)
        found = predict_memory(audit, Subject(step=step), "/project")

    assert found.exact["peak_allocated_bytes"] >= 4 * KIB
    assert found.unmeasured == {
        "peak_reserved_bytes": SEVERAL_STREAMS,
    }


@pytest.mark.usefixtures("_gpu")
def test_the_default_stream_is_no_other() -> None:
    def step() -> None:
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.device(0):
            torch.zeros(1024, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.synchronize()

    assert not steady(lambda: step)[2].live.several_streams


def by_parts(parts: list[Any], grads: list[Any], weight: Any, *known: Any) -> Any:
    """Output and gradients of a batch of which each rank has a part."""
    found = [torch.batch_norm_stats(part, EPS) for part in parts]
    counts = torch.tensor([part.numel() / 3 for part in parts], device="cuda")
    gathered = [torch.stack(each) for each in zip(*found, strict=True)]
    gather = torch.batch_norm_gather_stats_with_counts
    known = gather(parts[0], *gathered, *known, 0.1, EPS, counts)
    outputs = [torch.batch_norm_elemt(p, weight, None, *known, EPS) for p in parts]
    both = [(*each, *known, weight) for each in zip(grads, parts, strict=True)]
    asked = (True, True, True)
    sums = [torch.batch_norm_backward_reduce(*each, *asked) for each in both]
    total, product, of_weight, _ = (sum(each) for each in zip(*sums, strict=True))
    more = (total, product, counts.int())
    of_parts = [torch.batch_norm_backward_elemt(*each, *more) for each in both]
    return torch.cat(outputs), of_weight, torch.cat(of_parts)


def test_batch_normalisation_over_ranks_has_the_values_of_the_whole_batch() -> None:
    torch.manual_seed(0)
    batch, grad = torch.randn(2, 10, 3, 5, 5)
    running = [torch.zeros(3), torch.ones(3)]
    whole, weight = batch.clone().requires_grad_(), torch.rand(3, requires_grad=True)
    output = nn.functional.batch_norm(whole, *running, weight, training=True)
    output.backward(grad)
    with simulated_gpu():
        parts = [list(each.cuda().split([4, 6])) for each in (batch, grad)]
        own = [torch.zeros(3).cuda(), torch.ones(3).cuda()]
        found = [*by_parts(*parts, weight.detach().cuda(), *own), *own]
        found = [each.cpu() for each in found]

    wanted = [output.detach(), weight.grad, whole.grad, *running]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("_gpu", [False], ids=["sizes"], indirect=True)
@pytest.mark.usefixtures("mesh")
def test_batch_normalisation_over_ranks_ends_no_step() -> None:
    net = nn.SyncBatchNorm(3, device="cuda")
    net(torch.ones(2, 3, 4, 4, device="cuda")).sum().backward()

    assert net.weight.grad.shape == (3,)
