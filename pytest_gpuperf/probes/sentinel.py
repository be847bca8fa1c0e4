"""Times of the fixed kernels that witness the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..devices.protocol import Device
from ..devices.protocol import Kernel


REPEATS: Final = 4


def time_sentinels(device: Device) -> Mapping[str, tuple[float, ...]]:
    """Return milliseconds of each of the device's sentinels, ``REPEATS`` times.

    Nothing where one cannot run: out of memory, or settings of torch that the step
    has made. A witness must not fail a test.
    """
    try:
        with device.sentinels() as kernels:
            return {
                name: tuple(_time(device, kernel) for _ in range(REPEATS))
                for name, kernel in kernels.items()
            }
    except RuntimeError:
        return {}


def _time(device: Device, kernel: Kernel) -> float:
    device.synchronize()
    start_ns = device.now_ns()
    kernel()
    device.synchronize()
    return (device.now_ns() - start_ns) / 1e6
