"""Keeps dynamo, whose import takes seconds, out of a process that compiles nothing.

torch loads it for functions that dynamo must not look into, among them each step of an
optimizer. As long as it is not loaded nothing looks into them, and they run as they are.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import getclosurevars
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch.optim import optimizer

from ..dispatch import eager
from .patches import Suspended, when_loaded


LATE_MODULE: Final = "torch._dynamo"


@contextmanager
def late_dynamo(suspended: Suspended) -> Iterator[None]:
    """Do without dynamo until a program loads it, and hide the patches from it then."""
    with ExitStack() as undo:
        without = undo.enter_context(ExitStack())
        if LATE_MODULE not in sys.modules:
            without.enter_context(_stepping_without())
            without.enter_context(_calling_without())

        def run_eagerly(_: object) -> None:
            without.close()
            undo.enter_context(eager())

        undo.enter_context(when_loaded(LATE_MODULE, run_eagerly, suspended))
        yield


DISABLED: Final = "__dynamo_disable"
"""Where such a function remembers, from its first call on, what to call in its place."""

KEEPS_DYNAMO_OUT: Final = getattr(torch._disable_dynamo(abs), "__code__", None)  # noqa: SLF001, there is no public one


def _hidden() -> Iterator[Any]:
    """Yield what torch hides from dynamo, such as parts of optimizers and of its kernels."""
    for inner in gc.get_referrers(KEEPS_DYNAMO_OUT):
        if isinstance(inner, FunctionType):
            yield getclosurevars(inner).nonlocals["fn"]


# At import: a server of measuring processes then hides all objects from the collector.
HIDDEN: Final = tuple(_hidden())


@contextmanager
def _calling_without() -> Iterator[None]:
    """Call what is hidden from dynamo as it is."""
    for function in HIDDEN:
        setattr(function, DISABLED, function)
    try:
        yield
    finally:
        for function in HIDDEN:
            delattr(function, DISABLED)


def _use_grad_for_differentiable(func: Any) -> Any:
    """Do what torch's decorator does, without its two calls of dynamo."""

    def _use_grad(*args: Any, **kwargs: Any) -> Any:
        enabled = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(enabled)

    return _use_grad


@contextmanager
def _stepping_without() -> Iterator[None]:
    """Let the steps of torch's optimizers break no graph of dynamo: there is none."""
    decorated: Any = optimizer._use_grad_for_differentiable  # noqa: SLF001, what to replace
    breaking: CodeType = decorated(_use_grad_for_differentiable).__code__
    own: CodeType = _use_grad_for_differentiable(None).__code__
    plain = own.replace(
        co_filename=breaking.co_filename, co_firstlineno=breaking.co_firstlineno
    )
    is_alike = plain.co_freevars == breaking.co_freevars
    found = [s for s in _steps() if is_alike and s.__code__ is breaking]
    for step in found:
        step.__code__ = plain
    try:
        yield
    finally:
        for step in found:
            step.__code__ = breaking


def _steps() -> Iterator[Any]:
    """Yield what each optimizer of torch takes a step with, below its hooks."""
    for kind in vars(torch.optim).values():
        step = vars(kind).get("step") if isinstance(kind, type) else None
        step = getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step
        if hasattr(step, "__code__"):
            yield step
