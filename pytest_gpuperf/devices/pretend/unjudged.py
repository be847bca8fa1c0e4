"""What the pretend GPU runs in a simpler form, and says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..call_site import torch_path
from .patches import Patch
from .recorder import WATCH


def unjudged_patches() -> Iterator[Patch]:
    """Compilers, scripts and replicas."""
    yield Patch(torch, "compile", compile_)
    yield Patch(torch.jit, "script", script)
    yield Patch(torch.jit, "trace", trace)
    yield Patch(torch.nn.DataParallel, "forward", _on_one_device)


def compile_(model: Any = None, **options: Any) -> Any:
    """``torch.compile``: the model as it is."""
    if model is None:
        return lambda later: compile_(later, **options)
    WATCH.take_as_eager("torch.compile", "judged as eager code")
    return model


_script = torch.jit.script
_trace = torch.jit.trace


def script(obj: Any = None, *args: Any, **options: Any) -> Any:
    """``torch.jit.script``: what it was given, unjudged; torch's own code is scripted."""
    if torch_path(sys._getframe(1)) is not None:  # noqa: SLF001, whose call it is
        return _script(obj, *args, **options)
    WATCH.leave_unjudged("torch.jit.script", "scripted code runs as plain Python here")
    return obj


def trace(func: Any = None, *args: Any, **options: Any) -> Any:
    """``torch.jit.trace``: the same."""
    if torch_path(sys._getframe(1)) is not None:  # noqa: SLF001, whose call it is
        return _trace(func, *args, **options)
    WATCH.leave_unjudged("torch.jit.trace", "traced code runs as plain Python here")
    return func


def _on_one_device(parallel: Any, *args: Any, **options: Any) -> Any:
    WATCH.leave_unjudged(
        "torch.nn.DataParallel", "the copies to and from its replicas are not made"
    )
    return parallel.module(*args, **options)
