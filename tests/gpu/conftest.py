"""Tests marked ``gpu`` are skipped here, in one place, where there is no GPU."""

from __future__ import annotations

import warnings

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is missing is no news here
        available = torch.cuda.is_available()
    if available:
        return
    skip = pytest.mark.skip(reason=f"torch {torch.__version__} sees no CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
