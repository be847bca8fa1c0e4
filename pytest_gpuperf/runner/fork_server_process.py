"""The fork server's own process: it has imported what is heavy, and forks.

It reads orders as JSON lines from its standard input and answers with JSON lines on
its standard output. A child calls one function, writes its result to a file and exits.
The end of the input, which the death of the client is, ends every child.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shutil
import signal
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from ..devices.process_time import PROC, children, now_s, patience_for
from ..files import keep_below
from ..model.codec import decode
from ..model.environment import Overlay
from ..sharing.processes import (
    adopt_orphans,
    die_with,
    kill_group,
    resolved,
    when_parent_dies,
    write_json,
)
from .fork_server import send_progress_to
from .relocation import Relocation, hide, relocate


NO_SIGNAL: Final = 0


def main(order: Mapping[str, Any]) -> None:
    """Do what *order* says: call ``warm``, import ``preload``, serve till the input ends.

    With a ``relocation`` the project is imported from its root, and what ``packages``
    are without is hidden. The children write to ``progress``. The client's ``folder`` is
    removed at the end, as the client may be dead.
    """
    folder = order["folder"]
    if order["progress"] is not None:
        send_progress_to(order["progress"])
    keep_below(folder)
    replies = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not look like a reply
    _when_client_dies_remove(folder)
    if order["relocation"]:
        relocate(decode(Relocation, order["relocation"]))
    packages = decode(Overlay, order["packages"])
    hide(packages.hidden, packages.without)
    _prepare(order["preload"], order["warm"])
    when_parent_dies(NO_SIGNAL)  # the end of the input says it, and is obeyed in order
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    adopt_orphans()
    try:
        _Server(replies).serve()
    finally:
        # Also where nobody reads any more that the server is ready.
        _remove(folder)


def _when_client_dies_remove(folder: str) -> None:
    """End during the imports, which take seconds in which nobody reads the input."""

    def end(*_: object) -> NoReturn:
        _remove(folder)
        os._exit(1)  # an exception could be caught by what is being imported

    signal.signal(signal.SIGTERM, end)
    when_parent_dies(signal.SIGTERM)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _prepare(preload: list[str], warm: str | None) -> None:
    gc.disable()  # or it would walk all that is imported again and again
    # First: pytest collects garbage at its end, which takes long once torch is there.
    if warm:
        resolved(warm)()
    for name in preload:
        importlib.import_module(name)
    gc.freeze()  # or each child would walk, and so copy, every object of torch
    gc.enable()


class _Server:
    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._workers: dict[int, int] = {}
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        # Python writes to the wakeup descriptor only for signals that have a Python
        # handler; SIGCHLD is ignored by default.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The client decides when to end: it may still want the results of running
        # children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Obey until the input ends or the client is gone; then end every child."""
        try:
            self._say({"ready": os.getpid()})
            self._obey_until_the_end()
        finally:
            self._end_all()

    def _obey_until_the_end(self) -> None:
        buffered = b""
        while True:
            ready, _, _ = select.select([0, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if 0 in ready:
                received = os.read(0, 65536)
                if not received:
                    return
                *lines, buffered = (buffered + received).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def _say(self, message: dict[str, object]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")

    def _obey(self, order: dict[str, Any]) -> None:
        if "kill" in order:
            for pid, job in self._workers.items():
                if job == order["kill"]:
                    kill_group(pid)
        else:
            self._fork(order)

    def _fork(self, order: dict[str, Any]) -> None:
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            # The client reads end of file only when no process has a write end of the
            # replies.
            os.close(self._replies)
            _run_child(order, server)
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # here too, or a kill could come before its group
        self._workers[pid] = order["job"]
        self._say({"started": order["job"], "pid": pid})

    def _reap(self) -> None:
        while ended := _next_ended():
            pid, status = ended
            job = self._workers.pop(pid, None)
            if job is not None:
                code = os.waitstatus_to_exitcode(status)
                self._end_orphans()
                # Only now: the client starts the next job when it reads this, and what
                # the ended one left running would disturb it.
                self._say({"ended": job, "code": code})

    def _end_orphans(self) -> None:
        """End what an ended job has started and left: the next one is to be alone."""
        end_orphans(self._workers, self._wait)

    def _wait(self, seconds: float) -> None:
        """Wait until a child has ended, for so many *seconds* at most."""
        if select.select([self._wake], [], [], max(0.0, seconds))[0]:
            os.read(self._wake, 4096)

    def _end_all(self) -> None:
        for pid in self._workers:
            kill_group(pid)
        for pid in self._workers:
            os.waitpid(pid, 0)
        end_orphans((), self._wait)


def _next_ended() -> tuple[int, int] | None:
    """Return a process that has ended, and its status; its group ends with it."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    if pid:
        kill_group(pid)
    return (pid, status) if pid else None


def _run_child(order: dict[str, Any], server: int) -> NoReturn:
    code = 1
    try:
        _enter_child(order["output"], server)
        result = resolved(order["entry"])(order["request"])
        write_json(Path(order["result"]), result)
        code = 0
    except BaseException:  # noqa: BLE001 - its traceback is in the output file
        traceback.print_exc()
    finally:
        # Not `sys.exit`: exit handlers and buffers that the child has copied from the
        # server must not run or be written twice.
        os._exit(code)  # whatever happens, or there would be a second server


def _enter_child(output: str, server: int) -> None:
    # A group of its own lets a kill reach what the test has started as well.
    os.setpgid(0, 0)
    adopt_orphans()
    die_with(server)
    # The pipe is shared with the server since the fork: a child's signals would wake
    # it.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)


# Ends processes that a job started and left running, before the next job is measured.
#
# Each job adopts the processes that are orphaned below it, and when the job ends the
# server adopts them. So a child of the server that is not a job was left by a job that
# has ended, even if other jobs run side by side.

END_STAGES: Final = ((0, 0.2), (signal.SIGTERM, 0.5), (signal.SIGKILL, 1.3))
"""Signals, and the seconds that processes have to end by themselves, as cleaners of shared
memory do; to end when asked; and to die. A process without a core has longer."""


def end_orphans(jobs: Collection[int], wait: Callable[[float], object]) -> None:
    """End every child of this process that is none of *jobs*, and what they started.

    *wait* returns when a child has ended, or after so many seconds. What an orphan has
    started becomes one itself when it ends.
    """
    for number, seconds in END_STAGES if _unended(jobs) else ():
        signalled, patience = set[int](), patience_for(seconds, *_unended(jobs))
        while left := _unended(jobs):
            # Each signal once: `wait` returns for every child that ends, and a second
            # SIGTERM makes some programs give up cleaning.
            for pid in set(left) - signalled if number else ():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled.update(left)
            if patience.over(now_s(), left):
                break
            wait(patience.due - now_s())


def _unended(jobs: Collection[int]) -> list[int]:
    """Return the running children that are no *jobs*; reap those that have ended."""
    left = []
    for pid in {*map(int, children(PROC / str(os.getpid())))}.difference(jobs):
        with suppress(ChildProcessError):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            if not ended:
                left.append(pid)
    return left
