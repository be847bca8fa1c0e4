"""How many cores this process may use: those it may run on, and those it is granted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final


ROOT: Final = Path("/")


def usable_cores() -> int:
    """Cores this process may run on."""
    # The affinity mask knows of taskset and cpusets, which ``os.cpu_count`` ignores.
    # macOS has no such call.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def granted_cores(root: Path = ROOT) -> float | None:
    """Return the cores that a control group grants, version 2 and then 1.

    ``None`` if there is no such limit.
    """
    # Version 2 writes both numbers in one file, and ``max`` for no limit. Version 1 has
    # a file each, and -1 for none; neither is decimal.
    quota, _, period = text_of(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        group = root / "sys/fs/cgroup/cpu"
        quota = text_of(group / "cpu.cfs_quota_us")
        period = text_of(group / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def text_of(path: Path) -> str:
    """Return the text of a file, without space around it; nothing if there is none."""
    try:
        return path.read_text(encoding="ascii").strip()
    # None of these files exists everywhere: in a container or off Linux the fact is
    # unknown, which is reported, and not an error.
    except (OSError, UnicodeDecodeError):
        return ""
