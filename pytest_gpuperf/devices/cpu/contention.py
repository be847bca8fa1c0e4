"""Evidence of a contended machine: threads that wait for a core, a core that is shared."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final

from ..base import ThreadWork
from ..host_clock import HostClock
from ..process_time import (
    PROC,
    STATE_TO_PARENT,
    cpu_ticks,
    family,
    queue_times_ns,
    stats_of_all,
)
from ..step_thread import STEPS


# CPU time of other programs: neither this process nor its children.

BUSY_FIELDS: Final = (0, 1, 2, 5, 6, 7)
"""Columns of ``cpu`` in /proc/stat: user, nice, system, irq, softirq, steal (proc(5))."""


def others_ns(proc: Path = PROC) -> int | None:
    """CPU time in ns that all but this process and its descendants had since the start.

    To 10 ms or so, as the kernel counts it. ``None`` off Linux.
    """
    try:
        busy = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(busy[column]) for column in BUSY_FIELDS)
        own = sum(map(cpu_ticks, family(proc / str(os.getpid()))))
    # Off Linux there is no such file, and a sandbox may show an empty or a masked one:
    # all of it means that nothing is known, which is no error.
    except (OSError, IndexError, ValueError):
        return None
    # The kernel counts in clock ticks, mostly of 10 ms.
    return round((ticks - own) * 1e9 / os.sysconf("SC_CLK_TCK"))


def relatives(proc: Path = PROC) -> frozenset[int]:
    """Return this process, those that it comes from, and those that come from it.

    This process alone off Linux.
    """
    me = os.getpid()
    with suppress(OSError, IndexError, ValueError):
        parents = {pid: int(f[STATE_TO_PARENT]) for pid, f in stats_of_all(proc)}
        below = {pid for pid in parents if _descends(pid, parents)}
        return frozenset({me, *_above(me, parents), *below})
    return frozenset({me})


def _above(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def _descends(pid: int | None, parents: Mapping[int, int]) -> bool:
    """Whether *pid* is this process or comes from it."""
    while pid is not None:
        if pid == os.getpid():
            return True
        pid = parents.get(pid)
    return False


def run_queue_wait_ns(source: Path | None = None) -> int | None:
    """Nanoseconds the thread of the steps was runnable and not running; ``None`` off Linux.

    The second field of schedstat (Documentation/scheduler/sched-stats.rst). A thread
    that sleeps or waits for data is not on the run queue and does not count.
    """
    try:
        # Read at the edges of timed rounds: as buffered text it takes twice as long.
        with (source or STEPS.proc / "schedstat").open("rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None


CHILDREN: Final = Path("/proc/thread-self/children")

A_NAP_SECONDS: Final = 1e-4


def work_so_far(children: Path = CHILDREN) -> ThreadWork | None:
    """Return what this thread did so far; ``None`` where that says not what it takes.

    So with children, which may take its core, and on kernels that count no waits.
    """
    try:
        with children.open("rb", buffering=0) as file:
            is_alone = not file.read(1)
    except OSError:
        return None
    if not (is_alone and counts_waits()):
        return None
    return ThreadWork(
        thread_ns=HostClock.thread_ns(),
        process_ns=HostClock.process_ns(),
        waits=_waits_so_far(),
    )


@lru_cache(maxsize=1)
def counts_waits() -> bool:
    """Whether this kernel counts how often a thread lets its core go by itself."""
    before, never_free = _waits_so_far(), Lock()
    never_free.acquire()
    never_free.acquire(timeout=A_NAP_SECONDS)
    return _waits_so_far() > before


def _waits_so_far() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def family_wait_ns(proc: Path = PROC) -> int | None:
    """Nanoseconds that threads of this process and its descendants waited for a core.

    The sum over all that live now, so time that a step spends waiting for one of them
    is never more than it. ``None`` off Linux, or where the kernel keeps no such count.
    """
    try:
        me = family(proc / str(os.getpid()))
        waits = [waited for member in me for _, waited in queue_times_ns(member)]
    except (OSError, IndexError, ValueError):
        return None
    return sum(waits) if waits else None


# How long a core takes for a fixed loop: longer with a neighbour that shares it.
#
# On a virtual machine nothing else shows that another guest computes on the core's second
# thread: no waiting is counted, and no clock can be read. On one of 2 cores the loop then
# took 1.4 to 1.5 times as long, for seconds, and a training step 1.2 to 1.6 times.

TURNS: Final = 1000
"""Turns of the loop: it takes 25 to 100 us, and almost no memory."""

LOOPS: Final = 2
"""Loops of a reading, of which the quicker counts: the first one after a step finds the
interpreter's code in no cache, and takes a fifth longer."""


def loop_ns() -> int:
    """Return the CPU time of the loop: what it waited for a core does not count."""
    start_ns, total = HostClock.thread_ns(), 0
    for number in range(TURNS):
        total += number
    return HostClock.thread_ns() - start_ns


class CorePace:
    """Times the loop, and keeps the least that it took: that of an undisturbed core."""

    def __init__(self) -> None:
        self.undisturbed_ns: int | None = None

    def read(self) -> int | None:
        """Run the loop; ``None`` where the clock of a thread is too coarse for it."""
        taken = min(loop_ns() for _ in range(LOOPS))
        if taken <= 0:
            return None
        self.undisturbed_ns = min(taken, self.undisturbed_ns or taken)
        return taken
