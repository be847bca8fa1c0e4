"""What steps do to memory that is easily miscounted: exact bytes, with and without values.

Every case is the second of two equal steps. Most of what is alive at once is given in
KiB, and what is still alive at the end of the step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.utils import dlpack
from torch.utils.checkpoint import checkpoint

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.errors import NeedsGpuError
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.devices.simulated.tensor_values import BACKING
from pytest_gpuperf.errors import ErrorId


KIB = 2**10


@pytest.fixture(params=[True, False], ids=["values", "sizes"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(values=request.param) as simulated:
        yield simulated


def kib(count: int, **options: Any) -> Any:
    """A tensor of *count* KiB on the GPU."""
    return torch.empty(count * 256, device="cuda", **options).zero_()


class Doubled(torch.autograd.function.Function):  # type: ignore[misc]  # torch is untyped here
    """Saves twice as much as it needs, and writes to its input."""

    @staticmethod
    def forward(context: Any, tensor: Any) -> Any:
        context.save_for_backward(tensor.exp(), tensor.sin())
        context.mark_dirty(tensor)
        return tensor.mul_(2)

    @staticmethod
    def backward(context: Any, grad: Any) -> Any:
        first, second = context.saved_tensors
        return grad.mul(2).add_(first).add_(second)


def resized() -> Callable[[], object]:
    tensor = kib(4)

    def step() -> None:
        tensor.resize_(8 * 256)
        tensor.untyped_storage().resize_(4 * KIB)
        tensor.resize_(4 * 256)

    return step


def sharded() -> Callable[[], object]:
    """As FSDP does: a parameter has no memory but while it is used."""
    tensor = kib(8)

    def step() -> None:
        tensor.untyped_storage().resize_(8 * KIB)
        tensor.add_(1)
        tensor.untyped_storage().resize_(0)

    return step


def shrunk() -> Callable[[], object]:
    """A tensor that becomes smaller keeps its storage."""
    tensor = kib(8)
    return lambda: tensor.resize_(256).resize_(8 * 256)


def viewed() -> Callable[[], object]:
    tensor = kib(4).view(32, 32)

    def step() -> None:
        parts = tensor.t(), tensor[::2], tensor.expand(8, 32, 32), tensor.diagonal()
        tensor.as_strided((4, 4), (1, 8)), tensor.unfold(0, 4, 2), tensor.detach()
        tensor.split(8), tensor.chunk(2), tensor.flatten(), tensor.narrow(0, 0, 8)
        del parts

    return step


def last_view() -> Callable[[], object]:
    """The smallest view keeps all of the storage alive."""
    kept: list[Any] = []

    def step() -> None:
        kept.clear()
        kept.append(kib(16)[:1])

    return step


def copied_view() -> Callable[[], object]:
    tensor = kib(4).view(32, 32)
    return lambda: tensor.t().reshape(-1)


def in_place() -> Callable[[], object]:
    tensor, other = kib(4), kib(4)

    def step() -> None:
        tensor.add_(1).mul_(other).relu_().clamp_(0, 1).copy_(other)
        tensor[3:5] = 1
        torch.add(tensor, other, out=tensor)
        nn.functional.dropout(tensor, 0.0, training=False, inplace=True)

    return step


def tied() -> Callable[[], object]:
    embedding = nn.Embedding(64, 64, device="cuda")
    head = nn.Linear(64, 64, bias=False, device="cuda")
    head.weight = embedding.weight
    tokens = torch.zeros(16, dtype=torch.int64, device="cuda")

    def step() -> None:
        embedding.weight.grad = None
        head(embedding(tokens)).backward(kib(4).view(16, 64))

    return step


def without_gradients() -> Callable[[], object]:
    weight = kib(4, requires_grad=False).requires_grad_()

    def step() -> None:
        with torch.no_grad():
            weight.mul(2).mul(2).mul(2).mul(2)

    return step


def in_inference() -> Callable[[], object]:
    tensor = kib(4)

    def step() -> None:
        with torch.inference_mode():
            tensor.mul(2).mul(2).mul(2)

    return step


def custom_function() -> Callable[[], object]:
    leaf = kib(4).requires_grad_()

    def step() -> None:
        leaf.grad = None
        Doubled.apply(leaf.clone()).backward(kib(4))

    return step


def retained_graph() -> Callable[[], object]:
    leaf = kib(4).requires_grad_()

    def step() -> None:
        leaf.grad = None
        loss = leaf.exp().sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return step


def recomputed() -> Callable[[], object]:
    leaf = kib(4).requires_grad_()

    def block(tensor: Any) -> Any:
        return tensor.exp().exp().exp()

    def step() -> None:
        leaf.grad = None
        checkpoint(block, leaf, use_reentrant=False).backward(kib(4))

    return step


def new_optimizer() -> Callable[[], object]:
    """The moments of the old one are alive until the new one has taken its place."""
    weight = nn.Parameter(kib(16))
    held: list[Any] = [None]

    def step() -> None:
        held[0] = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        weight.grad = kib(16)
        held[0].step()
        weight.grad = None

    return step


def peak_reset() -> Callable[[], object]:
    def step() -> None:
        kib(8)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        kib(4)

    return step


def cache_emptied() -> Callable[[], object]:
    def step() -> None:
        kept = kib(8)
        torch.cuda.empty_cache()
        kib(4)
        del kept

    return step


def pinned() -> Callable[[], object]:
    """Pinned and shared memory is the host's."""
    host = torch.zeros(4 * 256).pin_memory()
    other = torch.zeros(4 * 256).share_memory_()

    def step() -> None:
        first = host.to("cuda", non_blocking=True)
        second = other.cuda().share_memory_()
        first.cpu(), second.to("cpu", non_blocking=True)

    return step


def lent() -> Callable[[], object]:
    """By DLPack torch lends memory to itself."""
    tensor = kib(4)

    def step() -> None:
        torch.from_dlpack(tensor).add_(1)
        dlpack.from_dlpack(dlpack.to_dlpack(tensor)).view(32, 32)
        torch.asarray(tensor, device="cuda")

    return step


def pointed_elsewhere() -> Callable[[], object]:
    tensor, other = kib(8), kib(4)

    def step() -> None:
        tensor.data = other
        other.set_(kib(16))
        other.set_(tensor)

    return step


def replaced() -> Callable[[], object]:
    """A tensor under the name of another: both are alive while it is computed."""
    held = [kib(4)]

    def step() -> None:
        held[0] = held[0] * 2

    return step


def copied_deeply() -> Callable[[], object]:
    layer = nn.Linear(32, 32, bias=False, device="cuda")
    return lambda: copy.deepcopy(layer).state_dict()


def moved_to_and_fro() -> Callable[[], object]:
    layer = nn.Linear(32, 32, bias=False, device="cuda")
    return lambda: layer.cpu().cuda()


def in_a_cycle() -> Callable[[], object]:
    """What only the collector frees is freed after the step."""

    def step() -> None:
        cycle: list[Any] = [kib(4)]
        cycle.append(cycle)
        kib(4)

    return step


class Case(NamedTuple):
    """What is made before the steps, and what the second step needs, in KiB."""

    build: Callable[[], Callable[[], object]]
    peak: float
    end: float
    reads: bool = False
    """Copies to the host, which without values is a guess that goes nobody knows where."""


CASES = (
    Case(resized, 12, 4),
    Case(sharded, 8, 0),
    Case(shrunk, 8, 8),
    Case(viewed, 4, 4),
    Case(last_view, 16, 16),
    Case(copied_view, 8, 4),
    Case(in_place, 8, 8),
    Case(tied, 72.5, 32.5),
    Case(without_gradients, 12, 4),
    Case(in_inference, 12, 4),
    Case(custom_function, 24, 8),
    Case(retained_graph, 17, 8),
    Case(recomputed, 28, 8),
    Case(new_optimizer, 48, 32),
    Case(peak_reset, 8, 0),
    Case(cache_emptied, 12, 0),
    Case(pinned, 8, 0, reads=True),
    Case(lent, 4, 4),
    Case(pointed_elsewhere, 20, 4),
    Case(replaced, 8, 4),
    Case(copied_deeply, 8, 4),
    Case(moved_to_and_fro, 4, 4, reads=True),
    Case(in_a_cycle, 8, 0),
)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES, ids=[case.build.__name__ for case in CASES])
def test_what_is_easily_miscounted_is_counted_exactly(case: Case) -> None:
    with watching_memory(0, from_now=True) as audit:
        step = case.build()
        audit.step(step)
        audit.step(step)

    memory = audit.memories()[1]
    assert (memory.allocated_bytes / KIB, memory.end_bytes / KIB) == case[1:3]
    is_guess = case.reads and not BACKING.has_values
    assert [op for op, _ in audit.live.unchecked] == ["aten::_to_copy"] * is_guess


def test_memory_that_another_library_would_take_needs_a_gpu(gpu: SimulatedGpu) -> None:
    with pytest.raises(NeedsGpuError) as caught:
        kib(1).__dlpack__()

    assert caught.value.error_id is ErrorId.GP308
    assert gpu.end_step().not_checked == ()


@pytest.mark.usefixtures("gpu")
def test_memory_under_a_gradient_is_not_lent() -> None:
    tensor = kib(1).requires_grad_()

    with pytest.raises(BufferError) as caught:
        torch.from_dlpack(tensor)

    assert str(caught.value) == (
        "Can't export tensors that require gradient, use tensor.detach()"
    )


@pytest.mark.usefixtures("gpu")
def test_the_memory_of_the_host_is_lent_as_ever() -> None:
    host = torch.zeros(3)

    torch.from_dlpack(host).add_(1)
    dlpack.from_dlpack(dlpack.to_dlpack(host)).add_(1)

    assert host.tolist() == [2, 2, 2]


def test_a_tensor_pointed_elsewhere_keeps_its_shape_when_the_other_changes() -> None:
    with simulated_gpu():
        tensor, other = kib(1), kib(1)

        tensor.data = other
        other.resize_(3)
        other.fill_(2)

        assert tensor.shape == (256,)
        assert tensor.sum().item() == 6
