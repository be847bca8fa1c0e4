"""Who holds a lock, as far as the operating system tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final


LOCKS: Final = Path("/proc/locks")
"""Linux: a line a lock, ``1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF``."""

PID, FILE = 4, 5
MOST_TOLD: Final = 60


def holders_of(path: Path, locks: Path = LOCKS) -> tuple[str, ...]:
    """Processes that hold a lock on *path*, each as ``pid 4711 (pytest ...)``.

    Empty where the system does not tell, as outside of Linux.
    """
    own = os.getpid()
    return tuple(_told(pid) for pid in sorted(set(_pids(path, locks))) if pid != own)


def _pids(path: Path, locks: Path) -> Iterator[int]:
    with suppress(OSError):
        inode = str(path.stat().st_ino)
        for line in locks.read_text(encoding="ascii").splitlines():
            fields = line.split()
            is_held = len(fields) > FILE and fields[1] == "FLOCK"  # "->" waits
            if is_held and fields[FILE].rpartition(":")[2] == inode:
                yield int(fields[PID])


def _told(pid: int) -> str:
    with suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        command = " ".join(raw.replace(b"\0", b" ").decode(errors="replace").split())
        shown = command if len(command) <= MOST_TOLD else f"{command[:MOST_TOLD]}..."
        return f"pid {pid} ({shown})" if shown else f"pid {pid}"
    return f"pid {pid}"
