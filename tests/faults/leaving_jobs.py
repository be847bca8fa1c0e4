"""Jobs that leave processes behind; ``leaving_jobs:function`` names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn


Request = Mapping[str, Any]

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
HOLD = (
    "import os, sys, signal; os.open(sys.argv[1], os.O_WRONLY); "
    "os.write(int(sys.argv[2]), b'!'); os.close(int(sys.argv[2])); signal.pause()"
)
FAMILY = f"import os; os.fork() or os.setsid(); {HOLD}"


def leave_a_session(request: Request) -> str:
    """Start a program that leads a session of its own."""
    _start(request, HOLD)
    return "done"


def leave_a_deaf_session(request: Request) -> str:
    """Start one that does not obey SIGTERM."""
    _start(request, DEAF + HOLD)
    return "done"


def leave_a_stopped_one(request: Request) -> str:
    os.kill(_start(request, HOLD), signal.SIGSTOP)
    return "done"


def leave_a_family(request: Request) -> str:
    """Start one that has a child in yet another session."""
    _start(request, FAMILY, said=2)
    return "done"


def leave_a_daemon(request: Request) -> str:
    """Fork twice, as daemons do: who started it is gone before the job ends."""
    _be_forgotten(request)
    return "done"


def leave_and_crash(request: Request) -> NoReturn:
    _start(request, HOLD)
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def leave_and_exit(request: Request) -> NoReturn:
    _be_forgotten(request)
    os._exit(0)


def leave_a_silent_fork(request: Request) -> str:
    """Fork without any exec, so that it looks like the job itself."""
    said, say = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.open(request["fifo"], os.O_WRONLY)
        os.write(say, b"!")
        signal.pause()
    os.read(said, 1)
    return "done"


def have_a_daemon_and_wait(request: Request) -> str:
    """Work on, next to a daemon, until a line is written to the FIFO ``until``."""
    _be_forgotten(request)
    with Path(request["until"]).open(encoding="utf-8") as until:
        until.read()
    return "done"


def _start(request: Request, program: str, said: int = 1) -> int:
    """Return the id of a process once *said* of its family hold the FIFO open."""
    heard, say = os.pipe()
    started = subprocess.Popen(
        [sys.executable, "-c", program, request["fifo"], str(say)],
        start_new_session=True,
        pass_fds=(say,),
    )
    os.close(say)
    for _ in range(said):
        os.read(heard, 1)
    return started.pid


def _be_forgotten(request: Request) -> None:
    between = os.fork()
    if between == 0:
        os.setsid()
        _start(request, HOLD)
        os._exit(0)
    os.waitpid(between, 0)
