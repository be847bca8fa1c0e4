"""Every storage on the simulated GPU is counted once, from its birth to its end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import StepMemory
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.devices.simulated.step_picture import alive_at


KIB = 2**10


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu():
        yield


@pytest.fixture(autouse=True)
def _leaked() -> None:
    """What earlier tests have left on the GPU counts for none."""
    with watching_memory(0) as audit:
        LEFT["bytes"] = audit.live.now_bytes


LEFT = {"bytes": 0}


def own(memory: StepMemory) -> StepMemory:
    """*memory* without what earlier tests have left behind."""
    return replace(
        memory,
        allocated_bytes=memory.allocated_bytes - LEFT["bytes"],
        end_bytes=memory.end_bytes - LEFT["bytes"],
    )


def kilobytes(count: int) -> Any:
    """A tensor of *count* KiB on the GPU."""
    return torch.ones(count * 256, device="cuda")


def steady(step: Callable[[], object], *, workspace_bytes: int = 0) -> StepMemory:
    """What the second of two equal steps needs."""
    with watching_memory(workspace_bytes) as audit:
        audit.step(step)
        audit.step(step)
    return own(audit.memories()[1])


def test_what_is_alive_at_once_makes_the_peak() -> None:
    def step() -> None:
        first = kilobytes(4)
        second = first + 1
        del first
        second + 1

    memory = steady(step)

    assert memory.allocated_bytes == 8 * KIB
    assert memory.allocations == 3
    assert memory.end_bytes == 0


def test_sizes_are_those_of_blocks_of_512_bytes() -> None:
    with watching_memory(0, from_now=True) as audit:
        audit.step(lambda: torch.ones((), device="cuda"))

    (memory,) = audit.memories()
    assert memory.requested_bytes == 4
    assert memory.allocated_bytes == 512


def test_memory_from_before_the_step_counts_while_it_lives() -> None:
    kept = [kilobytes(16)]

    def step() -> None:
        kept[0] + 1
        kept[0] = kilobytes(8)

    with watching_memory(0) as audit:
        audit.step(step)

    memory = own(*audit.memories())
    assert memory.allocated_bytes == 32 * KIB
    assert memory.end_bytes == 8 * KIB


def test_views_and_tied_weights_share_their_storage() -> None:
    embedding = nn.Embedding(64, 16).cuda()
    head = nn.Linear(16, 64, bias=False).cuda()
    head.weight = embedding.weight

    def step() -> None:
        rows = embedding.weight[:32].t().view(16, 32)[None]
        rows.detach().reshape(4, 128)

    memory = steady(step)

    assert memory.allocated_bytes == 64 * 16 * 4 + 4 * 128 * 4
    assert memory.allocations == 1


def test_in_place_operations_take_nothing() -> None:
    tensor = kilobytes(4)

    memory = steady(lambda: tensor.add_(1).mul_(2).relu_().zero_())

    assert memory.allocations == 0
    assert memory.peak is None
    assert memory.allocated_bytes == 4 * KIB


def test_no_grad_keeps_no_activations() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in "123"))
    model.cuda()
    batch = torch.ones(16, 64, device="cuda")
    activation = 16 * 64 * 4
    fixed = 3 * (64 * 64 * 4 + 512) + activation

    def forward() -> None:
        model(batch)

    with torch.no_grad():
        memory = steady(forward)
    trained = steady(forward)

    # the input of the pair of layers at work, its product and the tanh of that
    assert memory.allocated_bytes == fixed + 3 * activation
    # the first tanh is the input of nothing at work any more, and saved all the same
    assert trained.allocated_bytes == fixed + 4 * activation


def test_a_storage_that_grows_takes_the_new_block_before_it_gives_back_the_old() -> (
    None
):
    tensor = torch.empty(1024, device="cuda")

    def step() -> None:
        tensor.resize_(2048)
        tensor.untyped_storage().resize_(4 * KIB)

    with watching_memory(0) as audit:
        audit.step(step)

    memory = own(*audit.memories())
    assert memory.allocated_bytes == 12 * KIB
    assert memory.end_bytes == 4 * KIB
    assert memory.allocations == 2


def test_a_storage_of_no_size_is_given_back() -> None:
    tensor = kilobytes(8)

    def step() -> None:
        tensor.untyped_storage().resize_(0)
        kilobytes(4)
        tensor.untyped_storage().resize_(8 * KIB)

    memory = steady(step)

    assert memory.allocated_bytes == 8 * KIB
    assert memory.end_bytes == 8 * KIB
    assert memory.allocations == 2


def test_set_and_data_share_the_other_storage() -> None:
    source = kilobytes(4)
    target = torch.empty(0, device="cuda")
    other = torch.empty(0, device="cuda")

    def step() -> None:
        target.set_(source)
        other.data = source

    memory = steady(step)

    assert memory.allocations == 0
    assert memory.end_bytes == 4 * KIB


def test_a_custom_autograd_function_keeps_what_it_saves() -> None:
    class Scaled(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(context: Any, tensor: Any) -> Any:
            context.save_for_backward(tensor.exp())
            return tensor + 1

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            (saved,) = context.saved_tensors
            return grad * saved

    batch = kilobytes(4).requires_grad_()

    def step() -> None:
        batch.grad = None
        Scaled.apply(batch).backward(kilobytes(4))

    memory = steady(step)

    # the batch, what was saved, the output, its gradient, and that of the batch
    assert memory.allocated_bytes == 20 * KIB
    assert memory.end_bytes == 8 * KIB


def test_an_optimizer_made_anew_frees_the_state_of_the_old_one() -> None:
    model = nn.Linear(64, 64, bias=False).cuda()
    batch = torch.ones(1, 64, device="cuda")
    weights = 64 * 64 * 4

    def step() -> None:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    memory = steady(step)

    # one weight, its gradient, two moments; a step count; the batch
    assert memory.allocated_bytes == 4 * weights + 2 * 512
    # the weight, its gradient and the batch
    assert memory.end_bytes == 2 * weights + 512


def test_the_host_has_memory_of_its_own() -> None:
    array = torch.arange(1024, dtype=torch.float32).numpy()
    shared = torch.from_numpy(array)

    def step() -> None:
        on_device = torch.from_numpy(array).to("cuda")
        on_device.cpu()
        torch.as_tensor(array, device="cuda")
        shared.cuda()

    memory = steady(step)

    assert memory.allocated_bytes == 8 * KIB
    assert memory.allocations == 3
    assert memory.end_bytes == 0


def test_a_storage_moved_to_the_device_is_a_copy() -> None:
    storage = torch.ones(1024).untyped_storage()
    on_device = storage.cuda()

    memory = steady(lambda: torch.empty(0, device="cuda").set_(on_device))

    assert memory.end_bytes == 4 * KIB
    assert on_device.real.data_ptr() != storage.data_ptr()


def test_a_deep_copy_and_a_dictionary_of_state_are_counted() -> None:
    model = nn.Linear(64, 64).cuda()
    size = 64 * 64 * 4 + 512

    memory = steady(lambda: copy.deepcopy(model).state_dict())

    assert memory.allocated_bytes == 2 * size
    assert memory.end_bytes == size


def test_sparse_tensors_hold_indices_and_values() -> None:
    places = torch.zeros(2, 512, dtype=torch.int64)

    def step() -> None:
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            torch.sparse_coo_tensor(places, torch.ones(512), (4, 4)).cuda()

    memory = steady(step)

    assert memory.allocated_bytes == 2 * 512 * 8 + 512 * 4


ASIDE: dict[str, tuple[Callable[[Any, Any], object], int]] = {
    "the default stream": (lambda a, _: a @ a, 1),
    "no stream": (lambda a, _: on(None, a, a), 1),
    "the default one by name": (lambda a, _: on(torch.cuda.default_stream(), a, a), 1),
    "another": (lambda a, s: on(s, a, a), 1),
    "both": (lambda a, s: (a @ a, on(s, a, a)), 2),
    "the same twice": (lambda a, s: (on(s, a, a), on(s, a, a)), 1),
    "as a context of its own": (lambda a, s: on(s, a, a, of=lambda each: each), 1),
    "backward as well": (lambda a, s: (on(s, a, a), on(s, a, a).sum().backward()), 2),
    "two graphs": (lambda a, _: (captured(a), captured(a)), 1),
    "a graph after a warm-up": (lambda a, s: (on(s, a, a), captured(a)), 2),
    "a graph that is gone": (lambda a, _: captured(a) and None, 0),
    "rows of two lengths": (lambda a, _: of_two_lengths(a) @ a.detach(), 1),
    "a sparse matrix": (lambda a, _: a.detach().to_sparse() @ a, 0),
    "a compressed one": (lambda a, _: a.detach().to_sparse_csr() @ a.detach(), 0),
}
"""What multiplies, and how many workspaces that takes: over stub CUDA as many."""


def on(stream: Any, a: Any, b: Any, of: Any = torch.cuda.stream) -> Any:
    with of(stream):
        return a @ b


def of_two_lengths(a: Any) -> Any:
    parts = [a.detach(), a.detach()[:3]]
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


def captured(a: Any) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.detach() @ a.detach()
    return graph


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("case", ASIDE)
def test_each_stream_has_a_workspace_of_cublas(case: str) -> None:
    multiply, workspaces = ASIDE[case]
    with simulated_gpu(), watching_memory(2**20) as audit:
        a = torch.ones(8, 8, device="cuda", requires_grad=True)

        kept = multiply(a, torch.cuda.Stream())

        assert audit.live.workspace_bytes == workspaces * 2**20
        del kept


def test_products_take_a_workspace_of_cublas_a_thread() -> None:
    weight = torch.ones(8, 8, device="cuda", requires_grad=True)
    mib = 2**20

    def forward() -> None:
        with torch.no_grad():
            weight @ weight

    def both() -> None:
        weight.grad = None
        (weight @ weight).sum().backward()

    assert steady(forward, workspace_bytes=32 * mib).end_bytes == 32 * mib + 512
    assert steady(both, workspace_bytes=32 * mib).end_bytes == 64 * mib + 1024


def test_what_is_alive_at_an_event_is_known_by_number() -> None:
    with watching_memory(0, from_now=True) as audit:
        kept = kilobytes(1)
        audit.step(lambda: kept + 1)
    (memory,) = audit.memories()
    assert memory.peak is not None

    alive = alive_at(audit.events, memory.peak)

    assert [(birth.op, birth.nbytes) for birth in alive.values()] == [
        ("aten::ones", 1 * KIB),
        ("aten::add", 1 * KIB),
    ]


def test_a_copy_from_the_host_has_a_name_of_its_own() -> None:
    host = torch.ones(256)

    with watching_memory(0, from_now=True) as audit:
        kept = kilobytes(2) + 1, host.cuda(), torch.tensor([1.0], device="cuda")

    births = [event.op for event in audit.events if event.is_birth]
    assert kept
    assert births[-2:] == ["aten::_to_copy", "aten::_to_copy"]


def test_memory_and_waits_are_watched_one_at_a_time() -> None:
    with simulated_gpu() as gpu:
        with watching_memory(0, from_now=True) as audit:
            audit.step(lambda: kilobytes(1).sum().item())
        during = gpu.end_step()
        kilobytes(1).sum().item()
        after = gpu.end_step()

    assert during.totals.counts["launches"] == during.totals.syncs == 0
    assert after.totals.syncs == 1
    assert len(audit.events) == 4


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("convert", ["to_sparse_csr", "to_sparse_csc"])
def test_compressed_sparse_tensors_hold_three_arrays(convert: str) -> None:
    with watching_memory(0) as audit:
        before = audit.live.now_bytes
        kept = getattr(torch.eye(1024), convert)().to("cuda")
        after = audit.live.now_bytes

    assert kept.is_cuda
    # 1025 places of rows, 1024 of columns and 1024 values
    assert after - before == 8704 + 8192 + 4096


def test_torch_answers_with_the_live_numbers_while_memory_is_watched() -> None:
    with watching_memory(0) as audit:
        before = torch.cuda.memory_allocated()
        kept = kilobytes(4)
        kilobytes(8)
        seen = torch.cuda.memory_stats()
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        again = torch.cuda.max_memory_allocated("cuda:0")

    assert audit.live.now_bytes - before == kept.nbytes == 4 * KIB
    assert seen["allocated_bytes.all.current"] == before + 4 * KIB
    assert seen["allocated_bytes.all.peak"] == peak == before + 12 * KIB
    assert again == before + 4 * KIB
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0


def test_a_step_that_resets_the_peak_is_predicted_all_the_same() -> None:
    def step() -> None:
        kilobytes(8)
        torch.cuda.reset_peak_memory_stats()
        kilobytes(4)

    assert steady(step).allocated_bytes == 8 * KIB
