"""One process a rank: started together, watched together, ended together."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import Final
from typing import Protocol

from ..sharing.last_words import last_stack
from ..sharing.last_words import last_words
from .rank_process import Work
from .rank_process import be_rank
from .rank_process import output_of
from .rank_process import stack_file


GRACE_SECONDS: Final = 1.0
"""From the first failure on, for the other ranks to fail as well and say why."""

STACK_SECONDS: Final = 1.0
"""Most that a rank may take to write its stack."""

PAUSE_SECONDS: Final = 0.02

ELSEWHERE_SECONDS: Final = 0.25
"""How often it is asked whether a rank failed that another process watches."""


class Elsewhere(Protocol):
    """Ranks of the same test that other processes watch."""

    def have_failed(self) -> bool:
        """Whether one of them has failed."""

    def hear_of_failure(self) -> None:
        """Learn that one has failed that is watched here."""


class Nowhere:
    """All ranks are watched here."""

    def have_failed(self) -> bool:
        return False

    def hear_of_failure(self) -> None:
        """There is nobody to hear it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How one rank ended: all it said, and its exit code, ``None`` if it was killed.

    ``ended_at`` is on the monotonic clock. ``stack`` is where it was when it was killed
    or died of a fatal error, ``output`` the end of what it printed.
    """

    said: tuple[Mapping[str, Any], ...]
    code: int | None
    ended_at: float
    stack: str
    output: str


@dataclass(slots=True, kw_only=True)
class _Process:
    pid: int
    order: int
    report: int
    folder: Path
    number: int
    buffered: bytes = b""
    said: list[Mapping[str, Any]] = field(default_factory=list)
    code: int | None = None
    ended_at: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def failed(self) -> bool:
        return bool(self.code) or any(message.get("failed") for message in self.said)


def run_ranks(  # noqa: PLR0913  who they are, what they do, where and for how long
    work: Work,
    numbers: Sequence[int],
    *,
    meet: Callable[[], int],
    folder: Path,
    timeout_s: float,
    elsewhere: Elsewhere | None = None,
) -> tuple[RankEnd, ...]:
    """Fork a process for each of *numbers* that does *work*; return how each ended.

    *meet* is asked once all are forked, and what it returns they are told: what it
    starts need not survive a fork. They have *timeout_s* to end; when one fails, here or
    *elsewhere*, the others have ``GRACE_SECONDS``. What is left then is asked for its
    stack and killed, with all it started. Output and stacks are written to *folder*. No
    process outlives the one that calls this.
    """
    processes = _forked(work, numbers, folder)
    try:
        told = meet()
        for process in processes:
            with suppress(BrokenPipeError):
                os.write(process.order, f"{told}\n".encode())
        _watch(processes, time.monotonic() + timeout_s, elsewhere or Nowhere())
        _ask_for_stacks(processes)
        return tuple(_end(process) for process in processes)
    finally:
        for process in processes:
            _kill(process)
            os.close(process.order)
            os.close(process.report)


def _forked(work: Work, numbers: Sequence[int], folder: Path) -> list[_Process]:
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    processes: list[_Process] = []
    for number in numbers:
        order, order_end = os.pipe()
        report, report_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in processes:
                os.close(other.order)
                os.close(other.report)
            os.close(order_end)
            os.close(report)
            be_rank(work, number, parent, (order, report_end), folder)
        os.close(order)
        os.close(report_end)
        processes.append(
            _Process(
                pid=pid, order=order_end, report=report, folder=folder, number=number
            )
        )
    return processes


def _watch(processes: Sequence[_Process], until: float, elsewhere: Elsewhere) -> None:
    """Listen until all have ended, time is up, or grace is."""
    pause = None if isinstance(elsewhere, Nowhere) else ELSEWHERE_SECONDS
    with selectors.DefaultSelector() as selector, _woken_by_deaths() as woken:
        selector.register(woken, selectors.EVENT_READ)
        for process in processes:
            os.set_blocking(process.report, False)
            selector.register(process.report, selectors.EVENT_READ)
        failed = False
        while True:
            for process in processes:
                if not _look_after(process) and process.report in selector.get_map():
                    selector.unregister(process.report)
            if not failed and _has_failed(processes, elsewhere):
                failed = True
                until = min(until, time.monotonic() + GRACE_SECONDS)
            left = until - time.monotonic()
            if left <= 0 or all(process.is_over for process in processes):
                return
            selector.select(left if pause is None else min(left, pause))
            _heard(woken)


def _has_failed(processes: Sequence[_Process], elsewhere: Elsewhere) -> bool:
    if any(process.failed for process in processes):
        elsewhere.hear_of_failure()
        return True
    return elsewhere.have_failed()


@contextmanager
def _woken_by_deaths() -> Iterator[int]:
    """Lend a pipe that can be read when a child has died.

    The end of what a rank says does not tell its death: what it forks holds the pipe.
    """
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        os.close(woken)
        os.close(wake)


def _look_after(process: _Process) -> bool:
    """Take in what a rank has said, and its death; false when it will say no more."""
    if process.is_over:
        return False
    pid, status = os.waitpid(process.pid, os.WNOHANG)
    received, is_open = _heard(process.report)
    *lines, process.buffered = (process.buffered + received).split(b"\n")
    process.said += [json.loads(line) for line in lines]
    if pid:
        process.code = os.waitstatus_to_exitcode(status)
        process.ended_at = time.monotonic()
    return is_open and not pid


def _heard(pipe: int) -> tuple[bytes, bool]:
    """Return all that can be read without waiting, and whether more may come."""
    read: list[bytes] = []
    with suppress(BlockingIOError):
        while received := os.read(pipe, 65536):
            read.append(received)
        return b"".join(read), False
    return b"".join(read), True


def _ask_for_stacks(processes: Sequence[_Process]) -> None:
    stuck = [process for process in processes if not process.is_over]
    for process in stuck:
        os.kill(process.pid, signal.SIGUSR1)
    until = time.monotonic() + STACK_SECONDS
    before: list[int] = []
    while time.monotonic() < until:
        sizes = [len(_stack_of(process)) for process in stuck]
        if sizes == before and all(sizes):
            return
        before = sizes
        time.sleep(PAUSE_SECONDS)


def _stack_of(process: _Process) -> str:
    try:
        path = stack_file(process.folder, process.number)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _end(process: _Process) -> RankEnd:
    is_over = process.is_over
    output = output_of(process.folder, process.number)
    _kill(process)
    return RankEnd(
        said=tuple(process.said),
        code=process.code if is_over else None,
        ended_at=process.ended_at,
        stack=_stack_of(process) or last_stack(output),
        output=last_words(output),
    )


def _kill(process: _Process) -> None:
    """End a rank and all it started, if it has not ended; leave no zombie."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if not process.is_over:
        os.kill(process.pid, signal.SIGKILL)  # it may not have a group yet
        _, status = os.waitpid(process.pid, 0)
        process.code = os.waitstatus_to_exitcode(status)
