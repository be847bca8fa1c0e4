"""The pretend GPU as Python knows it and as torch's core does."""

from __future__ import annotations

from typing import Any
from typing import Final

import torch


LAZY: Final = torch.device("lazy")
"""A ghost's device in torch's core.

Every wheel has a device guard for this type, and its backward runs on the calling
thread, so the lines of a backward are seen.
"""

CUDA: Final = torch.device("cuda", 0)

CPU: Final = torch.device("cpu")

AUTOCAST_KEY: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)  # noqa: SLF001
"""Makes ``torch.autocast("cuda")`` apply to ghosts, see ``autocast``."""


# Devices as users name them: whether one is simulated, and what torch's core sees of
# it.

DEVICE_TYPES: Final = frozenset({CUDA.type, LAZY.type})
"""What the pretend GPU is called outside of torch's core and in it."""


def is_cuda(device: Any) -> bool:
    """Whether *device* (a string, an index, a ``torch.device``) is the pretend GPU.

    Raises torch's own error for a CUDA device beyond the first.
    """
    # A bool is an int to Python, and ``.to(True)`` names no device.
    if isinstance(device, bool) or device is None:
        return False
    if isinstance(device, int):
        _check_index(device)
        return True
    if isinstance(device, str):
        device = torch.device(device) if device.startswith("cuda") else None
    if not isinstance(device, torch.device) or device.type not in DEVICE_TYPES:
        return False
    _check_index(device.index)
    return True


def index_of(device: Any = None) -> int:
    """Index of *device* among the CUDA devices, of which there is one.

    Raises ``ValueError`` for another kind of device, as torch does.
    """
    if device is None or isinstance(device, int):
        index = device or 0
    else:
        found = torch.device(device)
        if found.type != CUDA.type:
            msg = f"Expected a cuda device, but got: {found}"
            raise ValueError(msg)
        index = found.index or 0
    _check_index(index)
    return index


def is_host(device: Any) -> bool:
    """Whether *device*, as torch's core names it, is one and is not the pretend GPU."""
    return device is not None and device.type not in DEVICE_TYPES


def in_core(value: Any) -> Any:
    """Return *value*, with the pretend GPU as torch's core knows it."""
    if isinstance(value, (str, torch.device)) and is_cuda(value):
        return LAZY
    return value


def _check_index(index: int | None) -> None:
    if index is None or index in {0, -1}:
        return
    # The class that CUDA errors have from torch 2.8 on; it is a RuntimeError.
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    msg = "CUDA error: invalid device ordinal"
    raise kind(msg)
