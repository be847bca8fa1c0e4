"""Peaks of single layers: normalisation, pools, folds and sparse products.

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

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script",
    "ignore:Sparse",
    "ignore:Attempted to insert a get_attr",
)

IMAGES = (16, 64, 32, 32)
SMALL = (16, 16, 32, 32)
ROWS = (65536, 64)
HALF = torch.bfloat16

Step = Callable[[], object]


def trained(
    make: Callable[[], Any],
    shape: tuple[int, ...],
    dtype: Any = torch.float32,
    *,
    last: bool = False,
    is_summed: bool = True,
) -> Callable[[], Step]:
    """A forward and a backward of a layer, with channels *last* or not."""

    def made() -> Step:
        kind = torch.channels_last if last else torch.contiguous_format
        layer = make().to("cuda", dtype, memory_format=kind)
        x = torch.randn(shape, device="cuda", dtype=dtype).to(memory_format=kind)
        x.requires_grad_()

        def step() -> None:
            y = layer(x)
            y.sum().backward() if is_summed else y.backward(torch.randn_like(y))
            x.grad = None
            layer.zero_grad()

        return step

    return made


def rows(*, is_merged: bool = True) -> Any:
    """A sparse matrix of 40,000 elements."""
    places = torch.arange(40000) * 97
    indices = torch.stack([places // 2048, places % 2048]).to("cuda")
    made = torch.sparse_coo_tensor(
        indices, torch.ones(40000, device="cuda"), (2048, 2048), check_invariants=False
    )
    return made._coalesced_(is_merged)


def product(multiply: Callable[[Any, Any], object]) -> Callable[[], Step]:
    def made() -> Step:
        sparse, dense = rows(), torch.randn(2048, 1024, device="cuda")
        return lambda: multiply(sparse, dense)

    return made


def sparse(
    run: Callable[[Any], object], *, is_merged: bool = True
) -> Callable[[], Step]:
    def made() -> Step:
        matrix = rows(is_merged=is_merged)
        return lambda: run(matrix)

    return made


def product_in_place() -> Step:
    matrix, dense = rows(), torch.randn(2048, 1024, device="cuda")
    out = torch.empty(2048, 1024, device="cuda")
    return lambda: torch.mm(matrix, dense, out=out)


def sparse_gradient(times: int, optimizer: Any = None) -> Callable[[], Step]:
    """*times* backward passes of an embedding of 512 words, one word each."""

    def made() -> Step:
        layer = nn.Embedding(5000, 64, sparse=True).to("cuda")
        words = torch.arange(512, device="cuda")
        update = optimizer(list(layer.parameters()), lr=0.1) if optimizer else None

        def step() -> None:
            layer.weight.grad = None
            for _ in range(times):
                layer(words).sum().backward()
            if update is not None:
                layer.weight.grad = layer.weight.grad._coalesced_(True)  # noqa: FBT003, torch's
                update.step()

        return step

    return made


def of_volumes(dtype: Any) -> Callable[[], Step]:
    """A batch norm of volumes, of which the channels move fastest."""
    last = torch.channels_last_3d

    def made() -> Step:
        layer = nn.BatchNorm3d(32).to("cuda", dtype)
        x = torch.randn(8, 32, 8, 16, 16, device="cuda", dtype=dtype)
        x = x.to(memory_format=last)
        return lambda: layer(x)

    return made


def norm(**options: Any) -> Callable[[], Any]:
    return lambda: nn.BatchNorm2d(64, **options)


def evaluated() -> Any:
    return nn.BatchNorm2d(64).eval()


CASES: dict[str, tuple[Callable[[], Step], int]] = {
    "batch norm in bfloat16": (
        trained(lambda: nn.BatchNorm2d(256), (32, 256, 4, 4), HALF, is_summed=False),
        789504,
    ),
    "of channels last, in float16": (
        trained(norm(), IMAGES, torch.float16, last=True, is_summed=False),
        6294528,
    ),
    "without weights": (
        trained(norm(affine=False), IMAGES, last=True, is_summed=False),
        12584960,
    ),
    "evaluated": (trained(evaluated, IMAGES, HALF, is_summed=False), 6293504),
    "evaluated, of channels last": (
        trained(evaluated, IMAGES, last=True, is_summed=False),
        16778240,
    ),
    "of rows": (
        trained(lambda: nn.BatchNorm1d(256), (512, 256), is_summed=False),
        1579008,
    ),
    "layer norm in bfloat16": (trained(lambda: nn.LayerNorm(64), ROWS, HALF), 25692160),
    "unfold": (trained(lambda: nn.Unfold(3), SMALL), 24884224),
    "pools of channels last": (
        trained(
            lambda: nn.Sequential(
                nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(3)
            ),
            SMALL,
            last=True,
        ),
        1845248,
    ),
    "transposed convolution of channels last": (
        trained(lambda: nn.ConvTranspose2d(16, 32, 4, 2, 1), SMALL, last=True),
        17859584,
    ),
    "convolution by channel": (
        trained(lambda: nn.Conv2d(16, 16, 3, groups=16), SMALL),
        2893824,
    ),
    "sparse product": (product(lambda a, x: a @ x), 25334784),
    "sparse product, added": (product(lambda a, x: torch.addmm(x, a, x)), 16946176),
    "sparse product with a vector": (product(lambda a, x: a @ x[:, 0]), 201728),
    "sparse product with a slice": (product(lambda a, x: a @ x[:, :16]), 693248),
    "sparse product, into another": (product_in_place, 8558080),
    "difference of sparse ones": (sparse(lambda a: a - a), 1760256),
    "sparse sum with a factor": (sparse(lambda a: torch.add(a, a, alpha=2)), 1760256),
    "sparse sum in place": (sparse(lambda a: a.clone().add_(a)), 2400256),
    "sparse ones multiplied": (sparse(lambda a: a * a), 2080256),
    "sparse ones multiplied in place": (sparse(lambda a: a.clone().mul_(a)), 2880512),
    "uncoalesced ones multiplied": (sparse(lambda a: a * a, is_merged=False), 2720256),
    "sparse times dense": (
        sparse(lambda a: a * torch.ones(2048, 2048, device="cuda")),
        17737728,
    ),
    "sparse times a number": (sparse(lambda a: a * 2), 800256),
    "dense plus uncoalesced": (
        sparse(
            lambda a: torch.ones(2048, 2048, device="cuda").add_(a), is_merged=False
        ),
        17097216,
    ),
    "dense under a mask": (
        sparse(lambda a: torch.ones(2048, 2048, device="cuda").sparse_mask(a)),
        17738240,
    ),
    "sparse gradient": (sparse_gradient(1), 1024),
    "sparse gradient, added up": (sparse_gradient(4), 406528),
    "sparse gradient under Adam": (sparse_gradient(1, torch.optim.SparseAdam), 655360),
    "sparse gradient under Adagrad": (sparse_gradient(2, torch.optim.Adagrad), 532992),
    "batch norm of volumes in bfloat16": (of_volumes(HALF), 4195840),
    "batch norm of volumes in float16": (of_volumes(torch.float16), 2098688),
}
if hasattr(nn, "RMSNorm") and hasattr(torch.ops.aten, "_fused_rms_norm"):
    CASES["RMS norm in bfloat16"] = (
        trained(lambda: nn.RMSNorm(64), ROWS, HALF),
        25429504,
    )


@pytest.mark.parametrize("case", CASES)
def test_its_peak_is_that_of_cuda(case: str) -> None:
    make, peak = CASES[case]

    with simulated_gpu(), watching_memory(from_now=True):
        step = make()
        for _ in range(2):
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step()
            found = torch.cuda.max_memory_allocated() - before

    assert found == peak


def test_a_sparse_matrix_is_coalesced_before_its_product() -> None:
    with simulated_gpu(), watching_memory(from_now=True) as audit:
        sparse, dense = rows(is_merged=False), torch.randn(2048, 16, device="cuda")
        audit.step(lambda: sparse @ dense)

    assert [e.nbytes for e in audit.events if e.op == "aten::mm" and e.is_birth] == [
        *(131072, 131072, 320000, 320000, 320000, 640511),
        *(640000, 160000, 8196, 160000, 160000, 131072),
    ]


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.func.linearize(torch.sin, x),
        lambda x: torch.func.jvp(nn.GroupNorm(4, 16, device="cuda"), (x,), (x,)),
        lambda x: torch.sparse.softmax(x.to_sparse(), 1),
        lambda x: torch.sparse.sum(x.to_sparse(), 0),
        lambda x: torch.sparse.mm(x.to_sparse(), x.t().to_sparse()),
        lambda x: torch.bmm(torch.stack([x.to_sparse()]), x.t()[None]),
    ],
    ids=["linearize", "jvp", "softmax", "sum", "product", "batched"],
)
def test_memory_that_only_a_gpu_can_show_is_named(run: Callable[[Any], object]) -> None:
    with simulated_gpu(), watching_memory(from_now=True) as audit:
        x = torch.randn(8, 16, device="cuda")
        audit.step(lambda: run(x))

    assert len(audit.live.unchecked) == 1
