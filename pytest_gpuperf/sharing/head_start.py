"""Gets a measuring process ready while the one before it runs, unnoticed by that one.

A fork, and pytest's start before it reads anything of the project, is a fifth of a short
run. The process before leaves a core free for it while it imports its test. A lock keeps
the two apart: what gets ready shares it, and what is timed has it alone. It is no
``DeviceLock``: that asks again every 5 ms, and here the kernel wakes who waits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(slots=True)
class QueueSlot:
    """This process's place: its *lock*, and the *gate* it waits at, a pipe.

    The gate is ``None`` from its turn on.
    """

    lock: int
    gate: int | None


_place: Final[list[QueueSlot]] = []


def enter_line(lock: Path, gate: int | None) -> None:
    """Be one process in a line; return when nothing is timed, if it is only to get ready."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if gate is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    _place[:] = [QueueSlot(descriptor, gate)]


def wait_for_turn() -> None:
    """Be ready, and return when the process before this one has ended."""
    for place in _place:
        if place.gate is None:
            continue
        fcntl.flock(place.lock, fcntl.LOCK_UN)
        if not os.read(place.gate, 1):
            os._exit(1)  # who opens the gate is dead, and nobody reads a result
        os.close(place.gate)
        place.gate = None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Time something while no process gets ready; wait for one that does."""
    for place in _place:
        _lock(place, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Not left to the end of the process: what the test has forked has the lock too.
        for place in _place:
            _lock(place, fcntl.LOCK_UN)


def _lock(place: QueueSlot, how: int) -> None:
    # A test may have closed all descriptors. It is measured all the same.
    with suppress(OSError):
        fcntl.flock(place.lock, how)
