"""ResNet-18 as it is, and prepared for inference.

The note's times (4.02 and 2.41 ms on a GPU) are not to be trusted: its clock was stopped
without a synchronisation, and ran without a warm-up. What its TorchScript, now deprecated,
does to the graph is counted here; ``torch.compile`` with frozen weights does it today.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from inductor import compiled, kernels_of, needs_compiler, operations_of
from models.resnet18 import ResNet18
from torch.nn.utils.fusion import fuse_conv_bn_eval

import pytest_gpuperf as gpuperf


def network(device="cpu"):
    torch.manual_seed(0)
    return ResNet18().eval().requires_grad_(requires_grad=False).to(device)


def image(device="cpu"):
    return torch.rand(1, 3, 64, 64, device=device)


def folded(model):
    """Take each batch normalisation into the convolution in front of it."""
    for module in list(model.modules()):
        children = list(module.named_children())
        for (name, first), (after, second) in pairwise(children):
            if isinstance(second, torch.nn.BatchNorm2d):
                setattr(module, name, fuse_conv_bn_eval(first, second))
                setattr(module, after, torch.nn.Identity())
    return model


@pytest.mark.claim("G1")
def test_a_network_without_its_normalisations_is_the_same(gpuperf, counts_kernels):
    plain, without = network(gpuperf.device), folded(network(gpuperf.device))
    x = image(gpuperf.device)
    torch.testing.assert_close(plain(x), without(x), rtol=1e-3, atol=1e-4)

    result = gpuperf.compare(lambda: plain(x), lambda: without(x))

    # a convolution has a bias then, which cuDNN leaves to a kernel of its own
    fewer = 0 if counts_kernels else 20
    assert result.ops.before - result.ops.after == fewer


def normalisations_of(function, x):
    with torch.profiler.profile() as profile:
        function(x)
    counts = {event.key: event.count for event in profile.key_averages()}
    return counts.get("aten::batch_norm", 0)


@pytest.mark.claim("G1")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_frozen_trace_has_folded_them(shown):
    model, x = network(), image()

    frozen = torch.jit.freeze(torch.jit.trace(model, x))

    torch.testing.assert_close(frozen(x), model(x), rtol=1e-3, atol=1e-4)
    before, after = normalisations_of(model, x), normalisations_of(frozen, x)
    shown(before, after, "norms")
    assert (before, after) == (20, 0)


@needs_compiler
@pytest.mark.claim("G1")
def test_a_compiled_network_has_fewer_kernels(shown):
    model, x = network(), image()

    before, after = operations_of(model, x), kernels_of(model, x, freezing=True)

    shown(before, after, "kernels")
    assert after < 0.5 * before


@needs_compiler
@pytest.mark.claim("G1", gate="time")
@pytest.mark.claim("G3")
@pytest.mark.slow
@gpuperf.tolerance(ms="1%", detect="10%")
def test_a_compiled_and_frozen_network_is_quicker(gpuperf, clock):
    model, x = network(clock), image(clock)
    fused = compiled(network(clock))
    with torch._inductor.config.patch(freezing=True), torch.no_grad():  # noqa: SLF001
        torch.testing.assert_close(fused(x), model(x), rtol=1e-3, atol=1e-3)

    result = gpuperf.compare(
        torch.no_grad()(lambda: model(x)),
        torch.no_grad()(lambda: fused(x)),
        speedup=1.15,
    )

    assert result.time.verdict != "slower"
