"""How much of its time a process has used: its own CPU time, and no other program's.

On a busy machine the wall clock says nothing about a process: it may have waited for a
core. Linux counts both for each thread, in /proc. Elsewhere, and where a kernel has no
schedstat, the wall clock is all there is. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import ClassVar, Final


# What /proc says of a process and of those that come from it.

PROC: Final = Path("/proc")

STATE_TO_PARENT: Final = 1
STATE_TO_TIMES: Final = slice(11, 15)
"""Fields of /proc/PID/stat from the state on: parent; utime, stime, those of children."""


def family(process: Path) -> Iterator[Path]:
    """Yield the folders of *process* and of all that come from it, as far as they live."""
    yield process
    for child in children(process):
        yield from family(process.parent / child)


def children(process: Path) -> list[str]:
    """Return the ids of the children of *process*; none if it has ended."""
    listed = [thread / "children" for thread in threads(process)]
    if any(file.exists() for file in listed):
        return [pid for file in listed for pid in _text(file).split()]
    # The kernel lists no children: all processes of the machine are asked.
    stats = stats_of_all(process.parent) if process.exists() else ()
    return [str(pid) for pid, f in stats if f[STATE_TO_PARENT] == process.name]


def threads(process: Path) -> list[Path]:
    """Return the folders of the threads of *process*; none if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return list((process / "task").iterdir())
    return []


def _text(file: Path) -> str:
    # A thread may end while we read: opening then fails with the one error, and reading
    # an open file with the other.
    with suppress(FileNotFoundError, ProcessLookupError):
        return file.read_text()
    return ""


def stats_of_all(proc: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield what proc(5) says of each process, from its state on."""
    for folder in proc.iterdir():
        if folder.name.isdigit():
            # A process may end between the listing and the reading.
            with suppress(OSError):
                yield int(folder.name), stat_of(folder)


def stat_of(process: Path) -> list[str]:
    """Return what proc(5) says of *process*, from its state on."""
    text = (process / "stat").read_text()
    # The name of a program may contain spaces and brackets: fields are counted from the
    # last closing bracket.
    return text.rpartition(") ")[2].split()


def cpu_ticks(process: Path) -> int:
    """Return the CPU time of *process* and of its ended children; 0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return sum(map(int, stat_of(process)[STATE_TO_TIMES]))
    return 0


def queue_times_ns(process: Path) -> Iterator[tuple[int, int]]:
    """Yield how long each thread of *process* ran, and waited for a core.

    A thread that sleeps or waits for data waits for no core. Raises ``OSError``,
    ``IndexError`` or ``ValueError`` where the kernel keeps no such count
    (Documentation/scheduler/sched-stats.rst).
    """
    for thread in threads(process):
        with suppress(FileNotFoundError, ProcessLookupError):
            ran, waited = (thread / "schedstat").read_bytes().split()[:2]
            yield int(ran), int(waited)


# The time of a process and of all that come from it.


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTime:
    """What a process and those that come from it have used.

    ``cpu_s`` is the CPU time of all their threads, also of those that have ended. Those
    that live ``ran_s`` and ``waited_s`` for a core.
    """

    cpu_s: float = 0.0
    ran_s: float = 0.0
    waited_s: float = 0.0

    def since(self, before: FamilyTime) -> FamilyTime:
        """Return what was used after *before*."""
        return FamilyTime(
            cpu_s=max(0.0, self.cpu_s - before.cpu_s),
            ran_s=max(0.0, self.ran_s - before.ran_s),
            waited_s=max(0.0, self.waited_s - before.waited_s),
        )

    def spent_s(self, wall_s: float) -> float:
        """Return how much of *wall_s* counts: all but the time it was kept off the cores.

        Of a single thread that is the CPU time and the time in which it slept or waited
        for input. Threads that are more than the cores keep each other waiting, which
        is no excuse: their CPU time over the cores counts at least.
        """
        waited_s = self.cpu_s * self.waited_s / self.ran_s if self.ran_s else 0.0
        at_once = max(1.0, (self.cpu_s + waited_s) / wall_s) if wall_s else 1.0
        kept_off_s = waited_s / at_once
        return min(wall_s, max(wall_s - kept_off_s, self.cpu_s / all_cores()))


def all_cores() -> float:
    """Return how many cores a process has at most, if nobody else computes."""
    return min(usable_cores(), granted_cores() or inf)


def time_of_family(pid: int, proc: Path = PROC) -> FamilyTime | None:
    """Return what process *pid* and those that come from it have used.

    ``None`` if it has ended, and off Linux. Without schedstat no thread has waited.
    """
    process = proc / str(pid)
    try:
        members = list(family(process)) if process.exists() else []
        ticks = sum(map(cpu_ticks, members))
    except (OSError, IndexError, ValueError):
        return None
    ran_s, waited_s = _queue_times(members)
    cpu_s = ticks / os.sysconf("SC_CLK_TCK")
    return FamilyTime(cpu_s=cpu_s, ran_s=ran_s, waited_s=waited_s) if members else None


def _queue_times(members: Collection[Path]) -> tuple[float, float]:
    with suppress(OSError, IndexError, ValueError):
        times = [times for process in members for times in queue_times_ns(process)]
        return sum(ran for ran, _ in times) / 1e9, sum(w for _, w in times) / 1e9
    return 0.0, 0.0


FRESH_SECONDS: Final = 0.05
"""For so long a reading of /proc holds, which takes up to milliseconds."""


class OwnClock:
    """The wall clock, less the time in which this process was kept off the cores."""

    def __init__(self) -> None:
        self._began_ns = HostClock.wall_ns()
        self._before = time_of_family(os.getpid()) or FamilyTime()
        self._read_s = self._spent_s = 0.0

    def now_ns(self) -> int:
        """Read it."""
        return self._began_ns + round(1e9 * self.seconds())

    def seconds(self) -> float:
        """Return how long it has run since it was made."""
        wall_s = (HostClock.wall_ns() - self._began_ns) / 1e9
        if wall_s - self._read_s > FRESH_SECONDS:
            used = time_of_family(os.getpid())
            self._read_s = wall_s
            self._spent_s = used.since(self._before).spent_s(wall_s) if used else wall_s
        return self._spent_s + wall_s - self._read_s


# So many seconds for a process, of its own time.

LEAST_LOOK_SECONDS: Final = 0.25
"""Between two looks at a process that is late: each takes a moment of a core."""


def now_s() -> float:
    """Read the clock of all patience, which no test can stop."""
    return HostClock.wall_ns() / 1e9


BUSY_FROM: Final = 3
"""Part of the time: a wait for a core is not counted before it is over."""

WHOLE_FROM: Final = 9.95
"""Seconds of which no tenths are said."""

TimeOfFamily = Callable[[int], FamilyTime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedTime:
    """What processes had used when their patience was over: ``cpu_s`` of ``wall_s``.

    They were ``idle`` if none of them computed for a third of the time that counted. The
    CPU time is ``None`` where nobody counts it.
    """

    wall_s: float
    cpu_s: float | None = None
    idle: bool = True

    def __str__(self) -> str:
        """Say it in a clause, without a subject."""
        wall = _seconds(self.wall_s)
        if self.cpu_s is None:
            return f"took {wall}"
        cpu = f"{_seconds(self.cpu_s)} of CPU"
        return (
            f"did nothing for most of {wall} ({cpu})"
            if self.idle
            else f"used {cpu} in {wall}"
        )


def _seconds(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= WHOLE_FROM else 1}f} s"


@dataclass(slots=True, kw_only=True)
class Patience:
    """Waits for processes until they have spent ``seconds`` of their own time.

    Of several the one decides that has spent least: the others may be waiting for it.
    Until the wall clock has counted as much, from ``began`` on, and again until ``due``,
    nobody looks at them. What they had used ``before`` does not count.
    """

    seconds: float
    began: float
    before: Mapping[int, FamilyTime] = field(default_factory=dict)
    read: TimeOfFamily = time_of_family
    due: float = field(init=False)

    def __post_init__(self) -> None:
        self.due = self.began + self.seconds

    def over(self, now: float, pids: Collection[int]) -> UsedTime | None:
        """Return what the processes *pids* have used if it is over; else look later."""
        if now < self.due:
            return None
        wall_s, used = now - self.began, list(self._used(pids))
        spent_s = min((time.spent_s(wall_s) for time in used), default=wall_s)
        if spent_s < self.seconds:
            self.due = now + max(self.seconds - spent_s, LEAST_LOOK_SECONDS)
            return None
        cpu_s = sum(time.cpu_s for time in used) if used else None
        idle = all(time.cpu_s < spent_s / BUSY_FROM for time in used)
        return UsedTime(wall_s=wall_s, cpu_s=cpu_s, idle=idle)

    def _used(self, pids: Collection[int]) -> Iterator[FamilyTime]:
        for pid in pids:
            found = self.read(pid)
            if found is not None:
                yield found.since(self.before.get(pid, FamilyTime()))

    def outlasted_by(self, process: Popen[bytes]) -> UsedTime | None:
        """Wait for *process* to end; return what it has used if that is too much."""
        used = None
        while used is None:
            with suppress(TimeoutExpired):
                process.wait(max(0.0, self.due - now_s()))
                return None
            used = self.over(now_s(), (process.pid,))
        return used


def patience_for(seconds: float, *pids: int) -> Patience:
    """Return that for *seconds* from now on; the processes *pids* have used time before."""
    found = {pid: time_of_family(pid) for pid in pids}
    before = {pid: used for pid, used in found.items() if used is not None}
    return Patience(seconds=seconds, began=now_s(), before=before)


# The clocks of this process, as they were before any test could replace them.
#
# A test that freezes time must not freeze what it is measured by. Attributes of `time`
# and of modules are what monkeypatch and freezegun replace; those of a class they leave
# alone, so the functions are kept in one.


class HostClock:
    """Reads the clocks of the host in nanoseconds."""

    wall_ns: ClassVar[Callable[[], int]] = staticmethod(time.perf_counter_ns)
    """The monotonic clock with the finest ticks."""

    process_ns: ClassVar[Callable[[], int]] = staticmethod(time.process_time_ns)
    """CPU time of this process, all threads."""

    thread_ns: ClassVar[Callable[[], int]] = staticmethod(time.thread_time_ns)
    """CPU time of this thread."""


# How many cores this process may use: those it may run on, and those it is granted.


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
