"""Where the laws are skipped, and how many GPUs the machine has that they pretend."""

from __future__ import annotations

import ctypes
import os

import pytest


VIRTUAL = os.environ.get("GPUPERF_STUB_CLOCK") == "virtual" and hasattr(
    ctypes.CDLL(None), "gpuperf_stub_work"
)

if VIRTUAL:
    os.environ["GPUPERF_STUB_DEVICES"] = "2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if VIRTUAL:
        return
    why = "laws hold on the virtual clock of tests/stub_cuda, which is not preloaded"
    for item in items:
        item.add_marker(pytest.mark.skip(reason=why))
