"""Ends processes that a job started and left running, before the next job is measured.

Each job adopts the processes that are orphaned below it, and when the job ends the
server adopts them. So a child of the server that is not a job was left by a job that
has ended, even if other jobs run side by side.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final


ALONE_SECONDS: Final = 0.2
"""Time for processes that end by themselves, such as cleaners of shared memory."""

ASKED_SECONDS: Final = 0.7
"""Until then the others get SIGTERM; what is left after it is killed."""

MOST_ORPHAN_SECONDS: Final = 2.0
"""After which a process that survives even SIGKILL is no longer waited for."""

PROC: Final = Path("/proc")


def end_orphans(jobs: Collection[int], wait: Callable[[float], object]) -> None:
    """End every child of this process that is none of *jobs*, and what they started.

    *wait* returns when a child has ended, or after so many seconds. What an orphan has
    started becomes one itself when it ends.
    """
    began, signalled = time.monotonic(), set[tuple[int, int]]()
    while left := _unended(jobs):
        passed = time.monotonic() - began
        if passed > MOST_ORPHAN_SECONDS:
            return
        number, until = _due(passed)
        for pid in left:
            # Each signal once: `wait` returns for every child that ends, and a second
            # SIGTERM makes some programs give up cleaning.
            if number and (pid, number) not in signalled:
                signalled.add((pid, number))
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        wait(until - passed)


def _due(passed: float) -> tuple[int, float]:
    """Return the signal that is due after so many seconds, and when the next one is."""
    if passed < ALONE_SECONDS:
        return 0, ALONE_SECONDS
    if passed < ASKED_SECONDS:
        return signal.SIGTERM, ASKED_SECONDS
    return signal.SIGKILL, MOST_ORPHAN_SECONDS


def _unended(jobs: Collection[int]) -> list[int]:
    """Return the running children that are no *jobs*; reap those that have ended."""
    left = []
    for pid in set(_children()).difference(jobs):
        with suppress(ChildProcessError):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            if not ended:
                left.append(pid)
    return left


def _children() -> list[int]:
    """Return this process's children; none if the system does not list them."""
    try:
        threads = [task / "children" for task in (PROC / "self/task").iterdir()]
        return [int(pid) for file in threads for pid in file.read_text().split()]
    except OSError:  # the kernel was built without
        return [pid for pid, parent in _parents() if parent == os.getpid()]


def _parents() -> list[tuple[int, int]]:
    found = []
    with suppress(OSError):
        for folder in PROC.iterdir():
            if folder.name.isdigit():
                with suppress(OSError):  # it may have ended
                    text = (folder / "stat").read_text()
                    # The command is in parentheses before the numbers and may
                    # contain both of them.
                    fields = text.rpartition(") ")[2].split()
                    found.append((int(folder.name), int(fields[1])))
    return found
