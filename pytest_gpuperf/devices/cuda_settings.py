"""Versions and settings of torch that times and memory on CUDA depend on."""

from __future__ import annotations

import os
from typing import Any


def cuda_settings(torch: Any) -> dict[str, str]:
    """Versions of CUDA and cuDNN and the switches of *torch*, by name."""
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    return {
        "cuda": str(torch.version.cuda),
        "cudnn": str(cudnn.version()),
        "allocator": _allocator(torch),
        "cudnn.benchmark": str(cudnn.benchmark),
        "cudnn.deterministic": str(cudnn.deterministic),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "float32 matmul": _float32(matmul, matmul),
        "float32 convolution": _float32(getattr(cudnn, "conv", None), cudnn),
    }


def _allocator(torch: Any) -> str:
    configured = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get(
        "PYTORCH_CUDA_ALLOC_CONF"
    )
    backend = str(torch.cuda.get_allocator_backend())
    return f"{backend} {configured}" if configured else backend


def _float32(backend: Any, legacy: Any) -> str:
    """Precision of float32 operations; from torch 2.9 on the flags must not be mixed."""
    precision = getattr(backend, "fp32_precision", None)
    if precision is not None:
        return str(precision)
    return "tf32" if legacy.allow_tf32 else "ieee"
