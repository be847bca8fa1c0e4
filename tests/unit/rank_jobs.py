"""What ranks do in the tests of their processes; jobs of the fork server start them."""
# ruff: noqa: T201 - what a rank prints are its last words

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fork_server_jobs import alive, never

from pytest_gpuperf.distributed import processes
from pytest_gpuperf.distributed.processes import Say, Work, run_ranks


processes.GRACE_SECONDS = 0.2  # type: ignore[misc]  # a test has no time

PORT = 4711


def two_ranks(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Have two ranks do what the request names, and say how they ended."""
    work: Work = {
        "report": report,
        "fail": fail,
        "crash": crash,
        "stay": stay,
        "leave_a_child": leave_a_child,
    }[request["work"]]
    fifo = request.get("fifo", "")
    with tempfile.TemporaryDirectory() as folder:
        ends = run_ranks(
            lambda rank, port, say: work(rank, port, _first(say, fifo)),
            range(2),
            meet=lambda: PORT,
            folder=Path(folder),
            timeout_s=request.get("timeout_s", 60.0),
            elsewhere=Failing() if request.get("elsewhere") else processes.NOWHERE,
        )
    return [asdict(end) for end in ends]


class Failing:
    """Other watchers, one of which has just seen its rank fail."""

    def have_failed(self) -> bool:
        return True

    def hear_of_failure(self) -> None:
        """They know."""

    def hear_of(self, pids: Sequence[int]) -> None:
        """They look after their own."""

    def pids(self) -> Sequence[int]:
        return ()


def _first(say: Say, fifo: str) -> Say:
    """Hold the FIFO open, where there is one, and go on."""
    if fifo:
        alive(fifo)
    return say


def report(rank: int, port: int, say: Say) -> None:
    say({"rank": rank, "port": port, "leads": os.getsid(0) == os.getpid()})
    say({"text": "é" * 100_000})


def fail(rank: int, port: int, say: Say) -> None:
    if rank == 0:
        never()
    print("said before")
    msg = "found 3, expected 4"
    raise ValueError(msg)


def crash(rank: int, port: int, say: Say) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    never()


def stay(rank: int, port: int, say: Say) -> None:
    never()


def leave_a_child(rank: int, port: int, say: Say) -> None:
    if os.fork() == 0:
        never()


def two_ranks_whose_parent_dies(request: Mapping[str, Any]) -> None:
    """Open the FIFO, which both ranks inherit, and die once they are there."""
    alive(request["fifo"])

    def killed() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    run_ranks(stay, range(2), meet=killed, folder=Path(request["folder"]), timeout_s=60)


def a_rank_with_a_child_whose_parent_dies(request: Mapping[str, Any]) -> None:
    """Let rank 0 start a process, and the parent of both ranks die then."""
    alive(request["fifo"])
    started, is_started = os.pipe()

    def work(rank: int, port: int, say: Say) -> None:
        if rank == 1:
            os.read(started, 1)
            os.kill(os.getppid(), signal.SIGKILL)
        elif os.fork():
            os.write(is_started, b"!")
        never()

    run_ranks(
        work,
        range(2),
        meet=lambda: PORT,
        folder=Path(request["folder"]),
        timeout_s=60,
    )
