"""Loading onto the device; saving needs nothing, as a ghost pickles like a CUDA tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .device_names import CUDA
from .patches import Patch
from .placement import is_cuda
from .record import Direction
from .storage import GhostStorage
from .transfers import record_copy


_restore = torch.serialization.default_restore_location


def loading_patches() -> Iterator[Patch]:
    """Where ``torch.load`` puts a storage."""
    yield Patch(torch.serialization, "default_restore_location", restore_location)


def restore_location(storage: Any, location: str) -> Any:
    """Restore *storage* where *location* says, on the device by a blocking copy."""
    __tracebackhide__ = True
    if not is_cuda(str(location)):
        return _restore(storage, location)
    record_copy(
        "torch.load",
        Direction.H2D,
        pinned=False,
        non_blocking=False,
        nbytes=storage.nbytes(),
    )
    return GhostStorage(storage, CUDA)
