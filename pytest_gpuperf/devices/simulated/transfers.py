"""Copies between host and device: their bytes, and whether the host waits for them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch

from ...model.finding import FindingKind
from ..audit_record import CopyDirection
from ..memory_owners import key_of
from .recorder import WATCH


TransferSync = tuple[FindingKind, str]
"""How sure it is that the host waits, and why it does."""

H2D: Final = CopyDirection.H2D
D2H: Final = CopyDirection.D2H
WAITS: Final = FindingKind.SYNC

TRANSFER_SYNCS: Final[
    Mapping[tuple[CopyDirection, bool, bool], TransferSync | None]
] = {
    (H2D, False, False): (WAITS, "a blocking copy to the GPU from pageable memory"),
    (H2D, True, False): (
        WAITS,
        "a copy to the GPU from pinned memory, but not non_blocking",
    ),
    (H2D, False, True): (
        FindingKind.INCONCLUSIVE,
        "a non_blocking copy from pageable memory is staged and may block",
    ),
    (H2D, True, True): None,
    (D2H, False, False): (WAITS, "a blocking copy to the CPU"),
    (D2H, True, False): (WAITS, "a copy to pinned memory, but not non_blocking"),
    (D2H, False, True): (
        FindingKind.COPY,
        "a non_blocking copy to pageable memory returns when it is done",
    ),
    (D2H, True, True): None,
}
"""By direction, pinned and non_blocking. Source: Copy.cu of torch 2.13; for pageable
memory "API synchronization behavior" in the CUDA runtime's reference."""


def record_copy(
    op: str,
    direction: CopyDirection,
    *,
    nbytes: int,
    pinned: bool = False,
    non_blocking: bool = False,
) -> None:
    """Record a copy of *nbytes*, more than none, and the sync it means."""
    if not nbytes or not WATCH.recorders:
        return
    sync = TRANSFER_SYNCS[direction, pinned, non_blocking]
    WATCH.copy(op, direction, pinned=pinned, nbytes=nbytes)
    if sync is not None:
        kind, reason = sync
        WATCH.synced(kind, op, reason)


class Moved(threading.local):
    """The host tensor that a thread is taking to the device by ``Tensor.to``, if any.

    torch's core does that in two operations, an ``empty`` and a ``copy_``. On CUDA the
    new tensor keeps the strides of a dense one; on a device like ours they are lost.
    """

    source: Any = None
    keeps_strides = True

    def strides(self, size: Any) -> Any:
        """Strides for the new tensor; ``None`` if torch's core knows them."""
        source = self.source
        if source is None or not self.keeps_strides:
            return None
        if source.layout is not torch.strided or source.is_contiguous():
            return None
        if source.shape != torch.Size(size) or not is_dense(source):
            return None
        return source.stride()


MOVED: Final = Moved()


def is_dense(tensor: Any) -> bool:
    """Whether the elements of *tensor* fill one block of memory, in whatever order."""
    places = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in places)
    return bool(extent == tensor.numel())


class PinnedMemory:
    """The host memory that is page-locked on a GPU's machine, by storage."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def pin(self, tensor: Any) -> Any:
        """Declare the memory of *tensor* pinned and return the tensor."""
        storage = tensor.untyped_storage()
        key = key_of(storage)
        # An address is used again once its storage is gone, so it is forgotten then.
        self._known[key] = weakref.ref(storage, partial(self._forget, key))
        return tensor

    def contains(self, tensor: Any) -> bool:
        """Whether *tensor*, on the host, lies in pinned memory."""
        return bool(self._known) and key_of(tensor.untyped_storage()) in self._known

    def _forget(self, key: int, _: object) -> None:
        self._known.pop(key, None)


PINNED_MEMORY: Final = PinnedMemory()
