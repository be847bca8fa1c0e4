"""The memory of the pretend GPU as its allocator sees it while a step runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..cuda_memory import FORESEEN
from .caching_allocator import MIB
from .caching_allocator import CachingAllocator


GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a device has, and what of it this process may take."""

    total_bytes: int
    allowed_bytes: int


class DeviceMemory:
    """An allocator at work on a device with *room*, or without end.

    ``retries`` counts how often its cache was emptied because the device had no more,
    ``failures`` how often that did not help.
    """

    def __init__(self, room: Room | None = None) -> None:
        self.allocator = CachingAllocator()
        self.room = room
        self.retries = 0
        self.failures = 0

    def has_room(self, nbytes: int) -> bool:
        """Whether a block of *nbytes* can be had without emptying the cache."""
        return self.room is None or self.allocator.fits(nbytes, self.room.allowed_bytes)

    def take(self, number: int, nbytes: int) -> None:
        """Give *number* a block, or raise ``torch.OutOfMemoryError``."""
        __tracebackhide__ = True
        if self.room is not None and not self.has_room(nbytes):
            self.failures += 1
            raise self._out_of_memory(nbytes, self.room)
        self.allocator.allocate(number, nbytes)

    def give_back(self, number: int) -> None:
        """Take back the block of *number*."""
        self.allocator.free(number)

    def empty_cache(self, *, retry: bool) -> None:
        """Give cached segments back to the device."""
        self.retries += retry
        self.allocator.empty_cache()

    def reset_sums(self) -> None:
        """Count from now on what comes and goes."""
        self.retries = self.failures = 0
        for gauge in self.allocator.gauges:
            gauge.reset_sums()

    def statistics(self) -> dict[str, int]:
        """What ``torch.cuda.memory_stats`` says of all pools together."""
        allocator = self.allocator
        found = {
            "num_alloc_retries": self.retries,
            "num_ooms": self.failures,
            "num_device_alloc": allocator.segments.come,
            "num_device_free": allocator.segments.gone,
        }
        for name, gauge in {
            "allocated_bytes": allocator.allocated,
            "active_bytes": allocator.allocated,
            "requested_bytes": allocator.requested,
            "reserved_bytes": allocator.reserved,
            "inactive_split_bytes": allocator.split,
            "allocation": allocator.blocks,
            "active": allocator.blocks,
            "segment": allocator.segments,
            "inactive_split": allocator.split_blocks,
        }.items():
            found[f"{name}.all.current"] = gauge.now
            found[f"{name}.all.peak"] = gauge.peak
            found[f"{name}.all.allocated"] = gauge.come
            found[f"{name}.all.freed"] = gauge.gone
        return found

    def _out_of_memory(self, nbytes: int, room: Room) -> Exception:
        """Say it as torch does, and by whom it was foreseen."""
        allocated, reserved = self.allocator.allocated.now, self.allocator.reserved.now
        allowed = ""
        if room.allowed_bytes < room.total_bytes:
            allowed = f"{_size(room.allowed_bytes)} allowed; "
        msg = (
            f"CUDA out of memory. Tried to allocate {_size(nbytes)}. GPU 0 has a total "
            f"capacity of {_size(room.total_bytes)} of which "
            f"{_size(room.total_bytes - reserved)} is free. {allowed}Of the allocated "
            f"memory {_size(allocated)} is allocated by PyTorch, and "
            f"{_size(reserved - allocated)} is reserved by PyTorch but unallocated. "
            "This is a prediction of gpuperf for its pretend GPU: no GPU ran out."
        )
        error: Exception = torch.OutOfMemoryError(msg)
        setattr(error, FORESEEN, torch.cuda.memory_summary(abbreviated=True))
        return error


def _size(nbytes: int) -> str:
    """Write as torch's message does (``format_size`` in CUDACachingAllocator.cpp)."""
    if nbytes <= 1024:  # noqa: PLR2004, a KiB
        return f"{nbytes} bytes"
    if nbytes <= MIB:
        return f"{nbytes / 1024:.2f} KiB"
    return f"{nbytes / GIB:.2f} GiB" if nbytes > GIB else f"{nbytes / MIB:.2f} MiB"
