"""States of a process that falsify every number, whatever the device."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from ..errors import ErrorId, PreflightError
from .step_thread import STEPS


# Garbage collection waits while steps are measured.


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect everything now, and nothing automatically until the end."""
    # A collection inside a step would take time from it, and free cyclic tensors at a
    # moment that differs from run to run.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Versions that every real device records with its numbers.


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


LAUNCH_BLOCKING = "CUDA_LAUNCH_BLOCKING"


def check_process() -> None:
    """Raise ``PreflightError`` for the first state found that falsifies numbers."""
    _refuse_launch_blocking()
    STEPS.call(_refuse_profiler)
    STEPS.call(_refuse_dispatch_mode)
    _refuse_anomaly_mode()


def _refuse_launch_blocking() -> None:
    value = os.environ.get(LAUNCH_BLOCKING, "")
    if value in {"", "0"}:
        return
    msg = (
        f"{LAUNCH_BLOCKING}={value} makes the CPU wait for every kernel, so its times "
        "are not those of training: unset it to measure"
    )
    raise PreflightError(msg, ErrorId.GP404)


def _refuse_profiler() -> None:
    from torch.autograd import profiler

    if not profiler._is_profiler_enabled:  # noqa: SLF001, no public question exists
        return
    msg = (
        "a torch profiler is active, which slows every operation down and shuts out "
        "the one that looks for syncs: stop it before gpuperf(step)"
    )
    raise PreflightError(msg, ErrorId.GP405)


def _refuse_dispatch_mode() -> None:
    from torch.utils import _python_dispatch

    modes = _python_dispatch._get_current_dispatch_mode_stack()  # noqa: SLF001
    if not modes:
        return
    msg = (
        f"the dispatch mode {type(modes[-1]).__name__} is active, which runs Python for "
        "every operation and turns torch.compile off: leave it before gpuperf(step)"
    )
    raise PreflightError(msg, ErrorId.GP406)


def _refuse_anomaly_mode() -> None:
    import torch

    if not torch.is_anomaly_enabled():
        return
    msg = (
        "autograd's anomaly mode is on, which records a traceback for every operation: "
        "turn it off with torch.autograd.set_detect_anomaly(False) to measure"
    )
    raise PreflightError(msg, ErrorId.GP407)
