"""Which tensors a step can reach: through its closure, its arguments, its globals.

Steps are plain functions, so what they hold is found as a debugger would find it. What
lies behind a library's functions or in attributes made by C code stays unseen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from types import BuiltinMethodType
from types import CodeType
from types import FunctionType
from types import MethodType
from types import ModuleType
from typing import Any
from typing import Final


MOST_OBJECTS: Final = 100_000
"""Objects that are looked at; what a step holds beyond them stays unseen."""

FOREIGN: Final = frozenset({"_pytest", "pluggy", "pytest", "pytest_gpuperf", "torch"})
"""Packages whose functions hold no state of a step."""

_ATOMS: Final = (type, ModuleType, CodeType, str, bytes, int, float, complex, bool)


def tensors_of(step: object) -> dict[str, Any]:
    """Return the tensors that *step* reaches by the name of the way that leads there.

    Nothing can be there where torch was never imported.
    """
    if "torch" not in sys.modules:
        return {}
    import torch

    found: dict[str, Any] = {}
    for name, value in _reached(step):
        if isinstance(value, torch.Tensor):
            found.setdefault(name, value)
    return found


def addresses_of(*steps: object) -> set[int]:
    """Return where the memory of all tensors begins that *steps* reach, or of gradients."""
    if "torch" not in sys.modules:
        return set()
    import torch

    tensors = [
        value
        for step in steps
        for _, value in _reached(step)
        if isinstance(value, torch.Tensor)
    ]
    # The gradient of a tensor that keeps none is not asked for: torch would warn.
    keeping = [tensor for tensor in tensors if tensor.is_leaf or tensor.retains_grad]
    gradients = [tensor.grad for tensor in keeping if tensor.grad is not None]
    return {
        tensor.untyped_storage().data_ptr()
        for tensor in (*tensors, *gradients)
        if tensor.layout is torch.strided and tensor.device.type != "meta"
    }


def files_of(step: object) -> set[str]:
    """Return the files of the functions that *step* reaches, and of its objects' methods.

    Nothing is looked at where torch was never imported.
    """
    if "torch" not in sys.modules:
        return set()
    return {
        function.__code__.co_filename
        for _, value in _reached(step)
        for function in (value, *vars(type(value)).values())
        if isinstance(function, FunctionType)
    }


def _reached(root: object) -> Iterator[tuple[str, object]]:
    """Walk breadth first, so that a tensor has its shortest name."""
    waiting: list[tuple[str, object]] = [("", root)]
    seen: dict[int, object] = {}
    for name, value in waiting:  # it grows while it is walked
        if id(value) in seen or isinstance(value, _ATOMS) or _is_foreign(value):
            continue
        if len(seen) > MOST_OBJECTS:
            return
        seen[id(value)] = value  # kept, or another object could get its id
        yield name, value
        waiting.extend(_held(name, value))


def _is_foreign(value: object) -> bool:
    """Whether *value* is of pytest or ours, but for tensors, or a library's function."""
    package = str(getattr(type(value), "__module__", "")).partition(".")[0]
    if isinstance(value, FunctionType):
        package = str(value.__module__).partition(".")[0]
        return package in FOREIGN or package in sys.stdlib_module_names
    return package in FOREIGN - {"torch"} and not hasattr(value, "untyped_storage")


def _held(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, FunctionType):
        yield from _held_by_function(name, value)
    elif isinstance(value, (MethodType, BuiltinMethodType)):
        yield name, getattr(value, "__func__", None)
        yield name, value.__self__
    elif isinstance(value, partial):
        yield from ((name, held) for held in (value.func, value.args, value.keywords))
    elif isinstance(value, dict):
        for key, item in islice(value.items(), MOST_OBJECTS):
            yield name, key
            yield _below(name, key), item
    elif isinstance(value, (list, tuple, set, frozenset)):
        for at, item in enumerate(islice(value, MOST_OBJECTS)):
            yield _below(name, at), item
    else:
        yield from _held_by_object(name, value)


def _held_by_function(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for variable, cell in zip(
        code.co_freevars, function.__closure__ or (), strict=True
    ):
        with suppress(ValueError):  # not assigned yet
            yield variable, cell.cell_contents
    for variable in _names_in(code):
        if variable in function.__globals__:
            yield variable, function.__globals__[variable]
    yield name, function.__defaults__
    yield name, function.__kwdefaults__
    yield name, function.__dict__


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _held_by_object(name: str, value: object) -> Iterator[tuple[str, object]]:
    import torch

    if isinstance(value, torch.Tensor):
        return
    if isinstance(value, torch.nn.Module):
        named = (*value.named_parameters(), *value.named_buffers())
        yield from ((_below(name, inside), tensor) for inside, tensor in named)
    for attribute, held in getattr(value, "__dict__", {}).items():
        yield _below(name, attribute), held
    for attribute in getattr(type(value), "__slots__", ()):
        if isinstance(attribute, str) and hasattr(type(value), attribute):
            yield _below(name, attribute), getattr(value, attribute, None)


def _below(name: str, inside: object) -> str:
    """Write ``model.0.weight``; a compiled module has the names of the one inside."""
    if not isinstance(inside, (str, int)):
        return name
    known = str(inside).replace("_orig_mod.", "")
    return f"{name}.{known}" if name else known
