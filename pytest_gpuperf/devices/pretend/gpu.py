"""The pretend GPU as a context: entered once a process, recorded by whoever asks."""

from __future__ import annotations

import importlib
import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils import _device

from ..dispatch import eager
from .attention import attention
from .autocast import autocast_kernels
from .autocast import autocast_patches
from .autocast import clear_cache
from .creation import FACTORIES
from .creation import FROM_HOST
from .creation import KERNELS
from .creation import LIKE
from .creation import creation_patches
from .exchange import exchange_patches
from .generator import generator_patches
from .ghost import Ghost
from .insides import holding
from .live_memory import MEMORY
from .mathematics import NAMES as MATHEMATICS
from .mathematics import mathematics_patches
from .methods import method_patches
from .patches import Patch
from .patches import patched
from .process_groups import process_group_patches
from .queries import query_patches
from .record import StepAudit
from .recorder import WATCH
from .recorder import Recorder
from .recurrent import recurrent_kernels
from .rms_norm import fused_kernels
from .stored import loading_patches
from .tracebacks import traceback_patches
from .tracebacks import without_own_frames
from .triton_kernels import skipped_kernels
from .uninitialized import uninitialized_patches
from .unjudged import unjudged_patches


class PretendGpu:
    """What is recorded inside one ``pretend_gpu()``, step by step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def begin_step(self) -> None:
        """Forget what was recorded so far."""
        self._recorder.clear()

    def end_step(self) -> StepAudit:
        """Return what was recorded since the step began, and begin another."""
        audit = self._recorder.audit()
        self._recorder.clear()
        return audit


class _Pretence:
    """The patches of this process and how many contexts need them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._contexts = 0
        self._undo = ExitStack()

    def begin(self) -> None:
        """Patch, if nobody did."""
        with self._lock:
            if self._contexts == 0:
                with ExitStack() as undo:
                    undo.enter_context(_patched_torch())
                    self._undo = undo.pop_all()
            self._contexts += 1

    def end(self) -> None:
        """Undo the patches, if nobody needs them any more."""
        with self._lock:
            self._contexts -= 1
            if self._contexts == 0:
                self._undo.close()


_PRETENCE = _Pretence()


@contextmanager
def entered(root: str | None, values: bool | None) -> Iterator[PretendGpu]:  # noqa: FBT001, three answers
    """Pretend and record; see ``pretend_gpu``."""
    recorder = Recorder(f"{Path(root or os.curdir).resolve()}{os.sep}")
    is_inner = bool(WATCH.recorders)
    _PRETENCE.begin()
    WATCH.recorders.append(recorder)
    try:
        with nullcontext() if is_inner and values is None else holding(values):
            yield PretendGpu(recorder)
    except BaseException as error:
        without_own_frames(error)
        raise
    finally:
        WATCH.recorders.remove(recorder)
        _PRETENCE.end()


@contextmanager
def _patched_torch() -> Iterator[None]:
    _load_what_must_not_see_patches()
    with ExitStack() as undo:
        undo.enter_context(_kernels())
        undo.enter_context(eager())
        undo.enter_context(patched(_patches()))
        undo.enter_context(skipped_kernels())
        undo.enter_context(_scriptable())
        undo.enter_context(_foreach_types())
        undo.callback(clear_cache)
        undo.callback(MEMORY.let_take, 1.0)
        yield


def _load_what_must_not_see_patches() -> None:
    """Import what asks torch.cuda or collects torch's functions when it is loaded."""
    for name in ("torch._dynamo", "torch.optim.optimizer", "torch.utils.checkpoint"):
        importlib.import_module(name)
    _device._device_constructors()  # noqa: SLF001, cached for ever on the first call


def _patches() -> Iterator[Patch]:
    yield from query_patches()
    yield from creation_patches()
    yield from method_patches()
    yield from generator_patches()
    yield from loading_patches()
    yield from exchange_patches()
    yield from mathematics_patches()
    yield from process_group_patches()
    yield from autocast_patches()
    yield from uninitialized_patches()
    yield from unjudged_patches()
    yield from traceback_patches()


@contextmanager
def _kernels() -> Iterator[None]:
    """Register kernels for the ghosts' device, for every thread of the process."""
    libraries = {
        "Lazy": (*KERNELS, *fused_kernels()),
        "AutocastCUDA": tuple(autocast_kernels()),
        "AutogradLazy": (
            ("scaled_dot_product_attention", attention),
            *recurrent_kernels(),
        ),
    }
    with ExitStack() as undo, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that take the place of torch's own
        for key, kernels in libraries.items():
            library = torch.library.Library("aten", "IMPL")
            undo.callback(library._destroy)  # noqa: SLF001, the public way is a test's helper
            for name, kernel in kernels:
                library.impl(name, kernel, key)
        registered = undo.pop_all()
    with registered:
        yield


@contextmanager
def _scriptable() -> Iterator[None]:
    """Let torch's compiler of scripts know the stand-ins for what they stand for."""
    table = torch.jit._builtins._get_builtin_table()  # noqa: SLF001, there is no public one
    names = (*FACTORIES, *FROM_HOST, *LIKE)
    added = {
        id(getattr(torch, name)): f"aten::{name}"
        for name in names
        if id(getattr(torch, name)) not in table
    }
    for name in MATHEMATICS:
        stand_in: Any = getattr(math, name)
        if id(stand_in.__wrapped__) in table:
            added[id(stand_in)] = table[id(stand_in.__wrapped__)]
    table.update(added)
    try:
        yield
    finally:
        for key in added:
            del table[key]


@contextmanager
def _foreach_types() -> Iterator[None]:
    """Let foreach and fused optimizers take ghosts, as they would CUDA tensors."""
    places: list[list[Any]] = []
    for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
        types = vars(importlib.import_module(name)).get("_foreach_supported_types")
        if types is not None and Ghost not in types:
            types.append(Ghost)
            places.append(types)
    try:
        yield
    finally:
        for types in places:
            types.remove(Ghost)
