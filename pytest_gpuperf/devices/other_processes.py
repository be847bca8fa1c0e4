"""What other programs compute, beside this process and those that it has started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final


PROC: Final = Path("/proc")

BUSY: Final = (0, 1, 2, 5, 6, 7)
"""Columns of ``cpu`` in /proc/stat, see proc(5): user, nice, system, irq, softirq, steal."""

STATE_TO_PARENT: Final = 1
STATE_TO_TIMES: Final = slice(11, 15)
"""Fields of /proc/PID/stat behind the state: the parent; utime, stime and both of children."""


def others_ns(proc: Path = PROC) -> int | None:
    """CPU time in ns that all but this process and its descendants had since the start.

    To 10 ms or so, as the kernel counts it. ``None`` off Linux.
    """
    try:
        busy = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(busy[column]) for column in BUSY)
        own = _own_ticks(proc)
    except (OSError, IndexError, ValueError):
        return None
    return round((ticks - own) * 1e9 / os.sysconf("SC_CLK_TCK"))


def _own_ticks(proc: Path) -> int:
    stats = dict(_stats(proc))
    parents = {pid: int(fields[STATE_TO_PARENT]) for pid, fields in stats.items()}
    return sum(
        sum(map(int, fields[STATE_TO_TIMES]))
        for pid, fields in stats.items()
        if _descends(pid, parents)
    )


def _stats(proc: Path) -> Iterator[tuple[int, list[str]]]:
    """Give what proc(5) says of each process, from its state on."""
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it may have ended
                text = (folder / "stat").read_text()
                yield int(folder.name), text.rpartition(") ")[2].split()


def _descends(pid: int | None, parents: Mapping[int, int]) -> bool:
    """Whether *pid* is this process or comes from it."""
    while pid is not None:
        if pid == os.getpid():
            return True
        pid = parents.get(pid)
    return False
