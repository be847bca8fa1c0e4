"""Where tests marked ``gpu`` and ``hardware`` are skipped, in one place.

A test is marked ``hardware`` with the reason why stub libraries of CUDA cannot answer
it (``tests/stub_cuda``).
"""

from __future__ import annotations

import ctypes
import warnings

import pytest
import torch


def is_on_stub() -> bool:
    """Whether the driver of this process is the one of ``tests/stub_cuda``."""
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), "gpuperf_stub")
    except OSError:
        return False


def has_gpu() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is missing is no news here
        return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not has_gpu():
        skip = pytest.mark.skip(reason=f"torch {torch.__version__} sees no CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)
    elif is_on_stub():
        for item in items:
            for needed in item.iter_markers("hardware"):
                why = f"needs a real GPU: {needed.args[0]}"
                item.add_marker(pytest.mark.skip(reason=why))
