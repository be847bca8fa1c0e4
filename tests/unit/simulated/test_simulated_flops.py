"""The simulated GPU counts the floating point operations that torch's own counter counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: N812, after the skip
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pytest_gpuperf.devices.simulated import op_plan as flops, simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu() as entered:
        yield entered


Training = Callable[[str], Callable[[], object]]


def linear(device: str) -> Callable[[], object]:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    batch = torch.randn(5, 8).to(device)
    labels = torch.arange(5).remainder(4).to(device)
    optimizer = torch.optim.SGD(net.parameters())

    def step() -> object:
        F.cross_entropy(net(batch), labels).backward()
        return optimizer.step()

    return step


def convolution(device: str) -> Callable[[], object]:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 2, 2)
    ).to(device)
    images = torch.randn(2, 3, 6, 6).to(device).requires_grad_()

    return lambda: net(images).square().mean().backward()


def attention(device: str) -> Callable[[], object]:
    inputs = [torch.randn(2, 3, 7, 4).to(device).requires_grad_() for _ in "qkv"]

    def step() -> object:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(*inputs).sum().backward()

    return step


def inference(device: str) -> Callable[[], object]:
    net = nn.Linear(8, 16).to(device)
    batch = torch.randn(5, 8).to(device)

    def step() -> Any:
        with torch.inference_mode():
            return net(batch) @ net.weight

    return step


@pytest.mark.parametrize("training", [linear, convolution, attention, inference])
def test_a_step_counts_what_torch_counts_on_the_cpu(
    gpu: SimulatedGpu, training: Training
) -> None:
    with FlopCounterMode(display=False) as counter:
        training("cpu")()
    on_device = training("cuda")
    gpu.begin_step()
    on_device()

    flops = gpu.end_step().totals.counts["flops"]

    assert flops == counter.get_total_flops()
    assert flops > 0


def test_products_are_counted_forward_and_backward(gpu: SimulatedGpu) -> None:
    left = torch.randn(2, 3, device="cuda", requires_grad=True)
    right = torch.randn(3, 5, device="cuda", requires_grad=True)
    gpu.begin_step()
    product = left @ right
    forward = gpu.end_step().totals.counts["flops"]
    product.sum().backward()

    backward = gpu.end_step().totals.counts["flops"]

    assert forward == 2 * 2 * 3 * 5
    assert backward == 2 * forward


def test_shapes_that_come_again_count_again(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flops, "MOST_KNOWN", 2)
    counts = []
    for rows in (2, 2, 3, 4, 2):
        left = torch.ones(rows, 7, device="cuda")
        gpu.begin_step()
        left @ left.T
        counts.append(gpu.end_step().totals.counts["flops"])

    assert counts == [2 * 7 * rows * rows for rows in (2, 2, 3, 4, 2)]


@pytest.mark.skipif(
    "dtype" not in torch.ops.aten.mm.overloads(), reason="torch 2.8 began with it"
)
@pytest.mark.parametrize("batch", [(), (4,)])
def test_a_product_in_another_dtype_is_computed_and_counted(
    gpu: SimulatedGpu, batch: tuple[int, ...]
) -> None:
    left = torch.full((*batch, 2, 3), 1.5, dtype=torch.bfloat16, device="cuda")
    right = torch.ones(*batch, 3, 5, dtype=torch.bfloat16, device="cuda")
    more = torch.ones(*batch, 2, 5, device="cuda")
    multiply, add = (torch.bmm, torch.baddbmm) if batch else (torch.mm, torch.addmm)
    gpu.begin_step()
    product = multiply(left, right, out_dtype=torch.float32)
    total = add(more, left, right, out_dtype=torch.float32, beta=2, out=more)
    step = gpu.end_step()

    assert not step.not_checked
    assert step.totals.counts["flops"] == 2 * math.prod(batch) * 2 * 2 * 3 * 5
    assert product.dtype is torch.float32
    assert product.flatten()[0].item() == 4.5
    assert total is more
    assert total.flatten()[0].item() == 6.5


def test_what_has_no_formula_counts_nothing(gpu: SimulatedGpu) -> None:
    x = torch.ones(8, device="cuda")
    gpu.begin_step()
    (x + x).sum()

    assert gpu.end_step().totals.counts["flops"] == 0
