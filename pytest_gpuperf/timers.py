"""Timers for tests that stay with the fixture of pytest-benchmark.

``pytest --benchmark-timer=pytest_gpuperf.timers.cuda_sync``, or ``cuda_event``. Its own
timer stops when the host has asked for the work, not when the GPU has done it.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from .errors import ErrorId, PreflightError


def cuda_sync() -> float:
    """Seconds on the host's clock, once the GPU has done all that it was asked for.

    Raises ``PreflightError`` without CUDA.
    """
    _cuda("cuda_sync").synchronize()
    return time.perf_counter()


def cuda_event() -> EventMoment:
    """Return a moment on the GPU's clock, in the current stream.

    The difference of two is what the stream took between them, in seconds: the time
    that the host needs to ask for work is not in it where the GPU is busy meanwhile.
    Raises ``PreflightError`` without CUDA.
    """
    event = _cuda("cuda_event").Event(enable_timing=True)
    event.record()
    return EventMoment(event)


class EventMoment:
    """An event that was recorded; ``later - earlier`` waits for it, and is seconds."""

    __slots__ = ("_event",)

    def __init__(self, event: Any) -> None:
        self._event = event

    def __sub__(self, earlier: EventMoment) -> float:
        # The time between two events is defined only once both have happened on the
        # GPU.
        self._event.synchronize()
        # `elapsed_time` is in milliseconds, pytest-benchmark expects seconds.
        return float(earlier._event.elapsed_time(self._event)) / 1e3


@cache
def _cuda(timer: str) -> Any:
    # Not at the top: pytest-benchmark imports this module when it parses its options.
    import torch

    if not torch.cuda.is_available():
        msg = (
            f"pytest_gpuperf.timers.{timer}: torch sees no CUDA device here; leave out "
            "--benchmark-timer, or run on a machine that has one"
        )
        raise PreflightError(msg, ErrorId.GP402)
    return torch.cuda
