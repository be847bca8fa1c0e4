"""State that both sides use and one of them changes, so neither can be measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from ..errors import ErrorId, StepError
from ..measure.step import Subject


# Tensors that a step can reach through its closure, arguments and globals.
#
# Steps are plain functions, so what they refer to is found as a debugger would find it.
# What is behind a library's functions, or in attributes made by C code, stays unseen.

Unseen = Callable[[], AbstractContextManager[object]]
"""Makes a context in which the simulated GPU counts nothing."""

MOST_OBJECTS: Final = 100_000
"""Most objects that are visited; what a step refers to beyond them stays unseen."""

NOT_USER_MODULES: Final = frozenset(
    {"_pytest", "pluggy", "pytest", "pytest_gpuperf", "torch"}
)
"""Packages with functions that contain no state of a step."""

_ATOMS: Final = (type, ModuleType, CodeType, str, bytes, int, float, complex, bool)


def tensors_of(step: object) -> dict[str, Any]:
    """Return the tensors that *step* reaches, by the path of names that leads there.

    There are none if torch was never imported.
    """
    found: dict[str, Any] = {}
    for name, tensor in _tensors(step):
        found.setdefault(name, tensor)
    return found


def addresses_of(*steps: object) -> set[int]:
    """Return the addresses of the storages that *steps* reach, gradients included."""
    tensors = [tensor for step in steps for _, tensor in _tensors(step)]
    # The gradient of a tensor that keeps none is not asked for: torch would warn.
    keeping = [tensor for tensor in tensors if tensor.is_leaf or tensor.retains_grad]
    gradients = [tensor.grad for tensor in keeping if tensor.grad is not None]
    return {
        tensor.untyped_storage().data_ptr()
        for tensor in (*tensors, *gradients)
        if _has_memory(tensor)
    }


def _tensors(step: object) -> Iterator[tuple[str, Any]]:
    if "torch" in sys.modules:
        import torch

        yield from ((n, t) for n, t in _reached(step) if isinstance(t, torch.Tensor))


def _has_memory(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.strided and tensor.device.type != "meta"


def _reached(root: object) -> Iterator[tuple[str, object]]:
    """Walk breadth first, so that a tensor has its shortest name."""
    waiting: list[tuple[str, object]] = [("", root)]
    seen: dict[int, object] = {}
    # The list grows while it is walked: a queue without the cost of popping.
    for name, value in waiting:
        if id(value) in seen or isinstance(value, _ATOMS) or _is_foreign(value):
            continue
        if len(seen) > MOST_OBJECTS:
            return
        # The object is kept, or another one could get its id while we walk.
        seen[id(value)] = value
        yield name, value
        waiting.extend(_held(name, value))


def _is_foreign(value: object) -> bool:
    """Whether *value* is pytest's or ours and no tensor, or a library's function."""
    package = str(getattr(type(value), "__module__", "")).partition(".")[0]
    if isinstance(value, FunctionType):
        package = str(value.__module__).partition(".")[0]
        return package in NOT_USER_MODULES or package in sys.stdlib_module_names
    return package in NOT_USER_MODULES - {"torch"} and not hasattr(
        value, "untyped_storage"
    )


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
        # An empty cell raises: its variable has not been assigned yet.
        with suppress(ValueError):
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


MOST_STATE_BYTES: Final = 2**28
"""Bytes of a tensor above which autograd's counter of writes is compared instead.

It misses writes through ``.data``.
"""


class SharedState:
    """The tensors that both sides reach, and their bytes before either has run.

    Python objects are not among them, nor tensors that ``tensors_of`` does not find.
    """

    def __init__(self, pair: Pair) -> None:
        self._unseen, self._step = pair.unseen, pair.before.step
        with self._unseen():
            self._tensors = [(n, t, _content(t)) for n, t in _shared(pair)]

    def refuse_change_by(self, side: str) -> None:
        """Raise ``StepError`` if a tensor differs now that *side* has run."""
        import torch

        with self._unseen():
            changed = [
                n for n, t, was in self._tensors if not torch.equal(was, _content(t))
            ]
        if changed:
            raise StepError(self._refusal(side, changed[0]), ErrorId.GP713)

    def _refusal(self, side: str, name: str) -> str:
        root, other = name.partition(".")[0], "before" if side == "after" else "after"
        holders = {type(held) for known, held in _reached(self._step) if known == root}
        hint = f"; all in {root} counts, as both name it"
        return (
            f"gpuperf.compare(before, after): {side} changes {name or 'a tensor'}, "
            f"which {other} uses as well, so that neither is measured by itself; give "
            "each side its own, and build model and optimizer twice"
            f"{hint * bool(holders & {dict, list, tuple})}"
        )


def _shared(pair: Pair) -> Iterator[tuple[str, Any]]:
    keys = {_key(tensor) for tensor in tensors_of(pair.before.step).values()} - {None}
    for name, tensor in tensors_of(pair.after.step).items():
        if _key(tensor) in keys:
            yield name, tensor


def _key(tensor: Any) -> object:
    """Return a key that tensors share if they share memory; ``None`` if unknown."""
    address = _has_memory(tensor) and tensor.untyped_storage().data_ptr()
    return (str(tensor.device), address) if address else None


def _content(tensor: Any) -> Any:
    """Copy the bytes of *tensor*: as bytes NaN equals itself, and any change shows."""
    import torch

    if tensor.nbytes > MOST_STATE_BYTES and not tensor.is_inference():
        # Private, but the only way to see a write without a copy. Inference tensors
        # have no such counter.
        return torch.tensor(tensor._version)  # noqa: SLF001
    copied = tensor.detach().to("cpu", copy=True).contiguous()
    return copied.reshape(-1).view(torch.uint8)


# The first step of each side.

TRAINING_TOLERANCE: Final = 0.01
"""Default for the relative difference that passes: other kernels, another order of
additions. A step that trains on other numbers differs by tens of percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two steps.

    ``training`` is the relative difference up to which both do the same training;
    ``None`` does not ask. Reads for it are ``unseen``: no wait of the steps.
    """

    before: Subject
    after: Subject
    training: float | None = None
    unseen: Unseen = nullcontext
