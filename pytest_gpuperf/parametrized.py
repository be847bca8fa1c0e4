"""Parameters of a test, as other programs can be told of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import isfinite

import pytest


def params_of(item: pytest.Item) -> Mapping[str, object]:
    """Return the parameters of *item* by name, each as a value that JSON has."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    return {str(name): shown(value) for name, value in callspec.params.items()}


def shown(value: object) -> object:
    """Return *value* if JSON has it, else its name if it has one, else that of its type.

    Nobody else's ``str`` is asked: it may be slow, wait for a device, or tell a path.
    """
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if type(value).__module__ == "torch":  # a dtype, a device, a layout
        return _brief(value)
    named = getattr(value, "__name__", None)
    return named if isinstance(named, str) else type(value).__name__


def _brief(value: object) -> str:
    is_tensor = hasattr(value, "shape")
    return type(value).__name__ if is_tensor else str(value)
