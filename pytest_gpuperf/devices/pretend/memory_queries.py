"""What ``torch.cuda`` answers about memory: the live numbers while they are watched."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .live_memory import MEMORY
from .placement import index_of


def memory_allocated(device: Any = None) -> int:
    """``torch.cuda.memory_allocated``; 0 while nobody watches memory."""
    index_of(device)
    return MEMORY.live.now_bytes if MEMORY.live is not None else 0


def max_memory_allocated(device: Any = None) -> int:
    """``torch.cuda.max_memory_allocated``; 0 while nobody watches memory."""
    index_of(device)
    return MEMORY.live.peak_bytes if MEMORY.live is not None else 0


def reset_peak(device: Any = None) -> None:
    """``torch.cuda.reset_peak_memory_stats``, which no prediction depends on."""
    index_of(device)
    if MEMORY.live is not None:
        MEMORY.live.reset_peak()


def memory_stats(device: Any = None) -> dict[str, int]:
    """``torch.cuda.memory_stats``: allocated bytes; all else is 0."""
    stats: dict[str, int] = defaultdict(int)
    stats["allocated_bytes.all.current"] = memory_allocated(device)
    stats["allocated_bytes.all.peak"] = max_memory_allocated(device)
    return stats


MEMORY_ANSWERS = {
    "max_memory_allocated": max_memory_allocated,
    "memory_allocated": memory_allocated,
    "memory_stats": memory_stats,
    "reset_max_memory_allocated": reset_peak,
    "reset_peak_memory_stats": reset_peak,
}
