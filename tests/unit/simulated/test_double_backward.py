"""Gradients of gradients and tangents: autograd does as on CUDA, and zeros take no memory.

The figures are of torch 2.13 for CUDA over stub libraries (``tests/stub_cuda``): its peak
above what was allocated before, in the second of two steps.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jvp, vmap

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


def inputs() -> Any:
    return torch.randn(64, 784, device="cuda", requires_grad=True)


def layers(activation: Any, *last: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 512), activation, *last).cuda()


def penalty(net: Any) -> None:
    """That of a Wasserstein GAN."""
    x = inputs()
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (slope.norm(2, 1) - 1).pow(2).mean().backward()


def squares(net: Any) -> None:
    x = inputs()
    (slope,) = torch.autograd.grad(net(x).pow(2).sum(), x, create_graph=True)
    slope.pow(2).mean().backward()


def kept_on_the_leaf(net: Any) -> None:
    x = inputs()
    net(x).sum().backward(inputs=[x], create_graph=True)
    slope, x.grad = x.grad, None
    slope.pow(2).mean().backward()


def gradients_of_weights(net: Any) -> None:
    weights = list(net.parameters())
    slopes = torch.autograd.grad(net(inputs()).sum(), weights, create_graph=True)
    torch.stack([slope.pow(2).sum() for slope in slopes]).sum().backward()


def three_times(net: Any) -> None:
    x = inputs()
    (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(3).sum(), x, create_graph=True)
    second.pow(2).mean().backward()


def product_with_the_hessian(net: Any) -> None:
    x = inputs().detach()
    torch.autograd.functional.hvp(lambda y: net(y).sum(), x, x)


def of_functions(net: Any) -> None:
    x = inputs().detach()
    slope = torch.func.grad(lambda y: net(y).sum())
    torch.func.grad(lambda y: slope(y).pow(2).mean())(x)


def tangents(net: Any) -> None:
    x = inputs().detach()
    jvp(net, (x,), (x,))


def tangents_of_weights(net: Any) -> None:
    x, weights = inputs().detach(), dict(net.named_parameters())
    weights = {name: weight.detach() for name, weight in weights.items()}
    jvp(lambda w: functional_call(net, w, (x,)), (weights,), (weights,))


def dual_numbers(net: Any) -> None:
    x = inputs().detach()
    with forward_ad.dual_level():
        forward_ad.unpack_dual(net[0](forward_ad.make_dual(x, x)))


def columns(net: Any) -> None:
    vmap(jacfwd(net[0]))(inputs().detach()[:4])


def forward_over_reverse(net: Any) -> None:
    x = inputs().detach()
    jvp(grad(lambda y: net(y).square().sum()), (x,), (x,))


def curvature(net: Any) -> None:
    hessian(lambda y: net[0](y).tanh().sum())(inputs().detach()[0])


def trained_on_tangents(net: Any) -> None:
    x = inputs().detach()
    y, tangent = jvp(net, (x,), (x,))
    (y - tangent.detach()).square().mean().backward()


def normed() -> Any:
    return layers(nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256))


CASES: dict[str, tuple[Callable[[Any], None], Callable[[], Any], int]] = {
    "leaky": (penalty, lambda: layers(nn.LeakyReLU(0.2), nn.Linear(512, 1)), 5553664),
    "tanh": (penalty, lambda: layers(nn.Tanh(), nn.Linear(512, 1)), 5553664),
    "relu": (
        penalty,
        lambda: layers(nn.ReLU(), nn.Linear(512, 1, bias=False)),
        5553664,
    ),
    "softplus": (penalty, lambda: layers(nn.Softplus(), nn.Linear(512, 16)), 5553664),
    "no last layer": (penalty, lambda: layers(nn.ReLU()), 5422080),
    "squares": (squares, lambda: layers(nn.GELU(), nn.Linear(512, 16)), 5455360),
    "backward": (
        kept_on_the_leaf,
        lambda: layers(nn.ReLU(), nn.Linear(512, 1)),
        5553664,
    ),
    "weights": (
        gradients_of_weights,
        lambda: layers(nn.Tanh(), nn.Linear(512, 8)),
        7055360,
    ),
    "third": (three_times, lambda: layers(nn.Tanh(), nn.Linear(512, 1)), 7681536),
    "hvp": (
        product_with_the_hessian,
        lambda: layers(nn.Tanh(), nn.Linear(512, 1)),
        1983488,
    ),
    "jvp": (tangents, normed, 2068992),
    "jvp of weights": (tangents_of_weights, normed, 1251328),
    "make_dual": (dual_numbers, normed, 2068992),
    "jacfwd": (columns, normed, 22896640),
    "jvp of grad": (forward_over_reverse, normed, 6672384),
    "hessian": (curvature, normed, 12411392),
    "jvp, trained": (trained_on_tangents, normed, 3520000),
    "torch.func": (of_functions, lambda: layers(nn.Tanh(), nn.Linear(512, 1)), 2053632),
}


def peak_of(step: Callable[[Any], None], make: Callable[[], Any]) -> int:
    net = make()
    for _ in range(2):
        net.zero_grad()
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(net)
    return int(torch.cuda.max_memory_allocated() - before)


@pytest.mark.filterwarnings("ignore:Using backward", "ignore:.*torch.jit.script")
@pytest.mark.parametrize("case", CASES)
def test_its_peak_is_that_of_cuda(case: str) -> None:
    step, make, peak = CASES[case]

    with simulated_gpu(), watching_memory(from_now=True):
        assert peak_of(step, make) == peak


def test_a_wait_in_the_second_backward_has_the_line_of_its_forward() -> None:
    with simulated_gpu() as gpu:
        x = torch.rand(4, device="cuda", requires_grad=True)
        for _ in range(3):
            y = x.cumprod(0)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            gpu.end_step()
            slope.cumprod(0).sum().backward()
            findings = gpu.end_step().findings

    lines = [f.forward.line for f in findings if f.forward is not None]
    first = test_a_wait_in_the_second_backward_has_the_line_of_its_forward
    start = first.__code__.co_firstlineno
    assert {line - start for line in lines} == {5, 7}
