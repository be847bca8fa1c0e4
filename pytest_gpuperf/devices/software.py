"""Versions that every real device records beside its numbers."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version


def software() -> dict[str, str]:
    """Versions of torch, Python and this plugin, by name."""
    import torch

    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "pytest-gpuperf": own_version(),
    }


def own_version() -> str:
    """Version of this package, if it is installed."""
    try:
        return version("pytest-gpuperf")
    except PackageNotFoundError:
        return "not installed"
