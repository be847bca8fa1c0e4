"""Autocast on the simulated GPU casts what the installed torch casts on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: N812, after the skip

from pytest_gpuperf.devices.simulated import autocast, simulated_gpu
from pytest_gpuperf.devices.simulated.errors import NeedsGpuError


HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32

TORCH_S_OWN = {
    "aten::binary_cross_entropy",
    "aten::linalg_matrix_sqrth",
    "aten::norm.names_ScalarOpt_dim",
}
"""The first raises for any tensor; the next is registered by torch 2.14 beside its lists;
the last has names of dimensions, which torch retired."""

CUDNN_S = {"aten::_cudnn_rnn"}
"""A build without cuDNN does not cast it."""


@pytest.fixture
def _simulated() -> Iterator[None]:
    with simulated_gpu(values=True):
        yield


def on_gpu(*shape: int, dtype: torch.dtype = BRAIN) -> Any:
    return torch.randn(*shape, dtype=dtype, device="cuda")


def test_each_operation_that_torch_casts_on_cuda_is_cast() -> None:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")

    cast = {f"aten::{name}" for name, _ in autocast.autocast_kernels()}

    assert cast - CUDNN_S == set(registered) - TORCH_S_OWN - CUDNN_S


IN_FLOAT32: dict[str, Callable[[], Any]] = {
    "nearest": lambda: F.interpolate(on_gpu(1, 2, 4, 4), scale_factor=2),
    "nearest of lines": lambda: F.interpolate(on_gpu(1, 2, 4), scale_factor=2),
    "nearest-exact": lambda: F.interpolate(
        on_gpu(1, 2, 4, 4), scale_factor=2, mode="nearest-exact"
    ),
    "linear": lambda: F.interpolate(on_gpu(1, 2, 4), scale_factor=2, mode="linear"),
    "bilinear": lambda: F.interpolate(on_gpu(1, 2, 4, 4), size=8, mode="bilinear"),
    "antialiased": lambda: F.interpolate(
        on_gpu(1, 2, 4, 4), size=2, mode="bicubic", antialias=True
    ),
    "trilinear": lambda: torch.nn.Upsample(scale_factor=2, mode="trilinear")(
        on_gpu(1, 2, 4, 4, 4)
    ),
    "pixels of a module": lambda: torch.nn.UpsamplingNearest2d(size=8)(
        on_gpu(1, 2, 4, 4)
    ),
    "rms_norm": lambda: F.rms_norm(on_gpu(2, 8), (8,)),
    "RMSNorm": lambda: torch.nn.RMSNorm(8, device="cuda", dtype=BRAIN)(on_gpu(2, 8)),
    "norm of a dimension": lambda: torch.ops.aten.norm(on_gpu(2, 8), 2, [1]),
    "norm": lambda: torch.ops.aten.norm(on_gpu(2, 8), 2),
    "norm of a matrix by name": lambda: torch.linalg.matrix_norm(on_gpu(2, 8), "fro"),
    "sum": lambda: on_gpu(2, 8).sum(),
}
"""Its lists name them for float32: they were not cast."""


@pytest.mark.usefixtures("_simulated")
@pytest.mark.parametrize("case", IN_FLOAT32)
def test_autocast_runs_it_in_float32(case: str) -> None:
    if "rms" in case.lower() and "rms_norm" not in dict(autocast.autocast_kernels()):
        pytest.skip("this torch composes rms_norm of operations that are cast")

    with torch.autocast("cuda", dtype=BRAIN):
        assert IN_FLOAT32[case]().dtype == FULL


@pytest.mark.usefixtures("_simulated")
def test_what_names_its_dtype_keeps_it() -> None:
    with torch.autocast("cuda", dtype=BRAIN):
        assert on_gpu(2, 8).sum(dtype=HALF).dtype == HALF
        assert torch.linalg.vector_norm(on_gpu(2, 8), dtype=BRAIN).dtype == BRAIN
        assert torch.ops.aten.norm(on_gpu(8, dtype=torch.float64), 2).dtype == (
            torch.float64
        )


@pytest.mark.usefixtures("_simulated")
def test_a_convolution_runs_in_the_dtype_of_the_autocast() -> None:
    image, kernel = on_gpu(1, 2, 4, 4, dtype=FULL), on_gpu(2, 2, 1, 1, dtype=FULL)

    with torch.autocast("cuda", dtype=BRAIN):
        assert F.conv2d(image, kernel).dtype == BRAIN
        assert F.conv2d(image, kernel, padding="same").dtype == BRAIN


SAMPLES: dict[str, tuple[Any, Any]] = {
    "torch_fp16": (torch, HALF),
    "torch_fp32": (torch, FULL),
    "torch_need_autocast_promote": (torch, FULL),
    "nn_fp16": (torch._C._nn, HALF),
    "nn_fp32": (torch._C._nn, FULL),
    "linalg_fp16": (torch.linalg, HALF),
    "methods_fp32": (torch.Tensor, FULL),
}
"""Lists of torch's own tests of autocast: where each is called, and the dtype it has."""


def dtype_of(place: Any, name: str, args: Any, *more: Any) -> Any:
    """Of what the sample *name* of torch returns; ``None`` if only a GPU runs it."""
    options = more[0] if more and isinstance(more[0], dict) else {}
    try:
        with torch.autocast("cuda"):
            result = getattr(place, name)(*args, **options)
    except NeedsGpuError:
        return None
    return (result if isinstance(result, torch.Tensor) else result[0]).dtype


@pytest.mark.usefixtures("_simulated")
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("kind", SAMPLES)
def test_torch_s_own_samples_have_the_dtype_that_torch_expects(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pytest.importorskip("expecttest", reason="torch's lists of samples need it")
    # Its import would forbid each later test to set a flag of torch.backends.
    monkeypatch.setattr(torch.backends, "disable_global_flags", lambda: None)
    from torch.testing._internal.autocast_test_lists import AutocastTestLists

    place, expected = SAMPLES[kind]
    samples = getattr(AutocastTestLists(torch.device("cuda")), kind)

    found = {
        sample[0]: dtype_of(place, *sample)
        for sample in samples
        # That of `einsum` is a text, which torch does not run either.
        if hasattr(place, sample[0]) and isinstance(sample[1], tuple)
    }

    assert {n: d for n, d in found.items() if d not in {expected, None}} == {}


@pytest.mark.usefixtures("_simulated")
def test_a_torch_without_its_headers_casts_nothing_silently(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(autocast, "HEADER", tmp_path / "autocast_mode.h")
    kernels = dict(autocast.autocast_kernels())

    with pytest.raises(NeedsGpuError, match="autocast_mode"):
        kernels["exp"](on_gpu(2, 8))
