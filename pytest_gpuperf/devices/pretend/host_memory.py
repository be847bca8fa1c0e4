"""How much memory this machine could still give to this process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final


MEMORY_FILE: Final = Path("/proc/meminfo")

GROUP: Final = Path("/sys/fs/cgroup")
"""Where a container's limit stands, with control groups of version 2."""


def available_bytes(meminfo: Path = MEMORY_FILE, group: Path = GROUP) -> int | None:
    """Bytes to be had without swapping; ``None`` where the system does not tell.

    The less of what the kernel estimates (``MemAvailable``) and what the container's
    limit leaves.
    """
    found = [left for left in (_of_machine(meminfo), _of_group(group)) if left]
    return min(found) if found else None


def _of_machine(meminfo: Path) -> int | None:
    with suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    return None


def _of_group(group: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        return limit - used + _reclaimable(group)
    return None


def _reclaimable(group: Path) -> int:
    """Bytes of the group's page cache, which the kernel drops before it swaps."""
    with suppress(OSError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return int(value)
    return 0
