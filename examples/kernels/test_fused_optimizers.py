"""One step of Adam and SGD on 100 parameters: in a loop, in lists, and fused.

Lists (``foreach``) are what a GPU does by itself today; on a CPU that is the loop.
"""

from __future__ import annotations

import pytest
import torch


ADAM = pytest.param(torch.optim.Adam, {"lr": 0.01}, id="Adam")
SGD = pytest.param(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}, id="SGD")


def update(device, kind, **settings):
    weights = [torch.zeros(8, 8, device=device, requires_grad=True) for _ in range(100)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    return kind(weights, **settings).step


@pytest.mark.claim("C5")
@pytest.mark.parametrize(("kind", "settings"), [ADAM, SGD])
def test_a_fused_optimizer_needs_a_few_operations(gpuperf, gpu, kind, settings):
    loop, lists, fused = (
        update(gpu, kind, **settings, **mode)
        for mode in ({"foreach": False}, {"foreach": True}, {"fused": True})
    )

    in_lists, at_once = gpuperf.compare(loop, lists), gpuperf.compare(lists, fused)

    assert at_once.ops.after < at_once.ops.before < 30
    assert in_lists.ops.before >= 300


@pytest.mark.claim("C5")
@pytest.mark.parametrize(("kind", "settings"), [ADAM, SGD])
def test_a_fused_optimizer_is_quicker_on_a_gpu(gpuperf, real_gpu, kind, settings):
    gpuperf.compare(
        update(real_gpu, kind, **settings, foreach=False),
        update(real_gpu, kind, **settings, fused=True),
        speedup=1.5,
    )
