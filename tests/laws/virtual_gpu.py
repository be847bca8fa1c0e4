"""Work of known length for the host and the GPU of the virtual clock, and plain loops."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Final

import torch


LAUNCH_MS: Final = 0.004
"""What a launch costs the host, in the table of costs of ``tests/stub_cuda``."""

MHZ: Final = 1755
"""The SM clock of the H100 that is simulated."""

CLOCK: Final = ctypes.PyDLL(None)
"""The process, with the library that is preloaded. Its calls keep the GIL."""


def host_works(ms: float) -> None:
    """Let the host compute for so long."""
    CLOCK.gpuperf_stub_work(ctypes.c_uint64(round(ms * 1e6)))


def gpu_works(ms: float) -> None:
    """Launch a kernel that lasts so long at the full clock, on the current stream."""
    torch.cuda._sleep(round(ms * 1e3 * MHZ))


def set_sm_mhz(mhz: float) -> None:
    """Let the SMs run at this clock from now on."""
    os.environ["GPUPERF_STUB_MHZ"] = str(mhz)


def wait_for_all() -> None:
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def loop_ms(step: Callable[[], object], steps: int) -> float:
    """Time *steps* steps and the sync for all that they launched."""
    wait_for_all()
    start_ns = time.perf_counter_ns()
    for _ in range(steps):
        step()
    wait_for_all()
    return (time.perf_counter_ns() - start_ns) / 1e6


def steady_ms(step: Callable[[], object]) -> float:
    """Return what each further step adds to a long loop that nobody watches."""
    step()
    return (loop_ms(step, 150) - loop_ms(step, 50)) / 100
