"""What Python's objects take of the memory."""

from __future__ import annotations

import tracemalloc


def peak_mib(read):
    """Return the most that was allocated at once while *read* ran."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
