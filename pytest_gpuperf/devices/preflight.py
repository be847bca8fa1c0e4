"""States of a process in which no honest number can be read, whatever the device."""

from __future__ import annotations

import os

from ..errors import PreflightError


LAUNCH_BLOCKING = "CUDA_LAUNCH_BLOCKING"


def check_process() -> None:
    """Raise ``PreflightError`` for the first state found that falsifies numbers."""
    _refuse_launch_blocking()
    _refuse_profiler()
    _refuse_dispatch_mode()
    _refuse_anomaly_mode()


def _refuse_launch_blocking() -> None:
    value = os.environ.get(LAUNCH_BLOCKING, "")
    if value in {"", "0"}:
        return
    msg = (
        f"{LAUNCH_BLOCKING}={value} makes the host wait for every kernel, so its times "
        "are not those of training: unset it to measure"
    )
    raise PreflightError(msg)


def _refuse_profiler() -> None:
    from torch.autograd import profiler

    if not profiler._is_profiler_enabled:  # noqa: SLF001, no public question exists
        return
    msg = (
        "a torch profiler is active, which slows every operation down and shuts out "
        "the one that looks for syncs: stop it before gpuperf(step)"
    )
    raise PreflightError(msg)


def _refuse_dispatch_mode() -> None:
    from torch.utils import _python_dispatch

    modes = _python_dispatch._get_current_dispatch_mode_stack()  # noqa: SLF001
    if not modes:
        return
    msg = (
        f"the dispatch mode {type(modes[-1]).__name__} is active, which runs Python for "
        "every operation and turns torch.compile off: leave it before gpuperf(step)"
    )
    raise PreflightError(msg)


def _refuse_anomaly_mode() -> None:
    import torch

    if not torch.is_anomaly_enabled():
        return
    msg = (
        "autograd's anomaly mode is on, which records a traceback for every operation: "
        "turn it off with torch.autograd.set_detect_anomaly(False) to measure"
    )
    raise PreflightError(msg)
