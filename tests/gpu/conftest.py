"""Where tests marked ``gpu``, ``hardware`` and ``stub`` are skipped, in one place.

A test is marked ``hardware`` with the reason why stub libraries of CUDA cannot answer
it (``tests/stub_cuda``), and ``stub`` if it asks about those libraries.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import torch


CLOCK: Final = "libgpuperf_clock.so"
"""The library of ``tests/stub_cuda`` that makes one virtual clock of all of a process."""


@cache
def is_on_stub() -> bool:
    """Whether the driver of this process is the one of ``tests/stub_cuda``."""
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), "gpuperf_stub")
    except OSError:
        return False


@cache
def has_gpu() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is missing is expected here
        return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        why = why_skipped(item, has_gpu=has_gpu(), on_stub=is_on_stub())
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def on_virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes of a test on the stubs take what the table of costs says.

    That is seconds less for each, and their times do not depend on who else computes. On
    a GPU nothing changes.
    """
    if not is_on_stub():
        return
    (library,) = (
        Path(folder) / CLOCK
        for folder in os.environ["LD_LIBRARY_PATH"].split(os.pathsep)
        if (Path(folder) / CLOCK).exists()
    )
    monkeypatch.setenv("GPUPERF_STUB_CLOCK", "virtual")
    monkeypatch.setenv("LD_PRELOAD", str(library))


def why_skipped(item: pytest.Item, *, has_gpu: bool, on_stub: bool) -> str:
    """Return why a test cannot be run here; empty if it can."""
    if not has_gpu and item.get_closest_marker("gpu"):
        return f"torch {torch.__version__} sees no CUDA device"
    if has_gpu and not on_stub and item.get_closest_marker("stub"):
        return "asks about the stub libraries of CUDA"
    needed = item.get_closest_marker("hardware")
    if has_gpu and on_stub and needed:
        return f"needs a real GPU: {needed.args[0]}"
    return ""
