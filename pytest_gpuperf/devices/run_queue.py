"""How long this thread waited for a core: the witness of a contended machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final


SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


def run_queue_wait_ns(source: Path = SCHEDSTAT) -> int | None:
    """Nanoseconds this thread was runnable and not running; ``None`` off Linux.

    The second field of schedstat (Documentation/scheduler/sched-stats.rst). A thread
    that sleeps or waits for data is not on the run queue and does not count.
    """
    try:
        with source.open("rb", buffering=0) as file:  # as text it takes twice as long
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None
