"""What ``torch.cuda`` answers about memory: the simulated allocator's, while it is watched."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .device_memory import DeviceMemory
from .live_memory import MEMORY
from .placement import index_of
from .record import AuditKind
from .recorder import WATCH


def memory_stats(device: Any = None) -> dict[str, int]:
    """``torch.cuda.memory_stats``: all pools together, and 0 for each of them."""
    index_of(device)
    return defaultdict(int, _device().statistics())


def memory_allocated(device: Any = None) -> int:
    """``torch.cuda.memory_allocated``; 0 while nobody watches memory."""
    index_of(device)
    return _device().allocator.allocated.now


def max_memory_allocated(device: Any = None) -> int:
    """``torch.cuda.max_memory_allocated``; 0 while nobody watches memory."""
    index_of(device)
    return _device().allocator.allocated.peak


def memory_reserved(device: Any = None) -> int:
    """``torch.cuda.memory_reserved``; 0 while nobody watches memory."""
    index_of(device)
    return _device().allocator.reserved.now


def max_memory_reserved(device: Any = None) -> int:
    """``torch.cuda.max_memory_reserved``; 0 while nobody watches memory."""
    index_of(device)
    return _device().allocator.reserved.peak


def reset_peak(device: Any = None) -> None:
    """``torch.cuda.reset_peak_memory_stats``, which no prediction depends on."""
    index_of(device)
    if MEMORY.live is not None:
        MEMORY.live.reset_peak()


def reset_accumulated(device: Any = None) -> None:
    """``torch.cuda.reset_accumulated_memory_stats``."""
    index_of(device)
    _device().reset_sums()


def empty_cache() -> None:
    """``torch.cuda.empty_cache``: what is cached goes back to the device."""
    WATCH.wait(
        AuditKind.MAYBE,
        "torch.cuda.empty_cache",
        "cudaFree waits for the device, if blocks are cached",
    )
    if MEMORY.live is not None:
        MEMORY.live.empty_cache()


def memory_info(device: Any = None) -> tuple[int, int]:
    """``torch.cuda.mem_get_info``: all of it is free but what is reserved."""
    index_of(device)
    total = MEMORY.room.total_bytes
    return max(0, total - memory_reserved()), total


def set_fraction(fraction: float, device: Any = None) -> None:
    """``torch.cuda.set_per_process_memory_fraction``."""
    index_of(device)
    if not 0 <= fraction <= 1:
        msg = f"Invalid fraction value: {fraction}. Allowed range: 0~1"
        raise ValueError(msg)
    MEMORY.let_take(fraction)


def fraction(device: Any = None) -> float:
    """``torch.cuda.get_per_process_memory_fraction``."""
    index_of(device)
    return MEMORY.share


def _device() -> DeviceMemory:
    return DeviceMemory() if MEMORY.live is None else MEMORY.live.device


MEMORY_ANSWERS = {
    "empty_cache": empty_cache,
    "get_per_process_memory_fraction": fraction,
    "max_memory_allocated": max_memory_allocated,
    "max_memory_cached": max_memory_reserved,
    "max_memory_reserved": max_memory_reserved,
    "mem_get_info": memory_info,
    "memory_allocated": memory_allocated,
    "memory_cached": memory_reserved,
    "memory_reserved": memory_reserved,
    "memory_stats": memory_stats,
    "reset_accumulated_memory_stats": reset_accumulated,
    "reset_max_memory_allocated": reset_peak,
    "reset_max_memory_cached": reset_peak,
    "reset_peak_memory_stats": reset_peak,
    "set_per_process_memory_fraction": set_fraction,
}
