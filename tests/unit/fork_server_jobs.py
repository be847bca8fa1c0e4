"""Jobs for the fork server's tests; ``module:function`` names them."""
# ruff: noqa: T201 - what a job prints are its last words

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pytest_gpuperf.runner.fork_server import send_progress


Request = Mapping[str, Any]

FRAMES = 20
"""More than are shown of a crash."""


def echo(request: Request) -> Request:
    return request


def talk(request: Request) -> bool:
    for text in request["texts"]:
        send_progress(text)
    return True


def order_and_address(request: Request) -> tuple[list[str], int]:
    return list({"a", "b", "c", "d", "e", "f", "g"}), id(print)


def pid(request: Request) -> int:
    return os.getpid()


def parent(request: Request) -> int:
    return os.getppid()


def variable(request: Request) -> str | None:
    return os.environ.get(request["variable"])


def directory(request: Request) -> str:
    return str(Path.cwd())


def collections(request: Request) -> Mapping[str, bool]:
    known = sys.modules["collecting_preload"]
    return {"at import": known.IS_COLLECTED, "in a job": gc.isenabled()}


def argument_count(request: Request) -> int:
    return len(request["items"])


def large(request: Request) -> str:
    return "x" * int(request["characters"])


def fail(request: Request) -> NoReturn:
    print("said before")
    msg = "found 3, expected 4"
    raise ValueError(msg)


def leave(request: Request) -> NoReturn:
    print("last words")
    os._exit(int(request["code"]))


def leave_in_silence(request: Request) -> NoReturn:
    os._exit(int(request["code"]))


def leave_by_exit(request: Request) -> NoReturn:
    sys.exit(3)


def kill_itself(request: Request) -> NoReturn:
    print("last words", file=sys.stderr)
    os.kill(os.getpid(), int(request["signal"]))
    signal.pause()
    raise AssertionError


def print_lines(request: Request) -> NoReturn:
    for line in range(int(request["lines"])):
        print(f"line {line}")
    os._exit(1)


def crash(request: Request) -> NoReturn:
    faulthandler.enable()
    deeper(FRAMES)


def deeper(frames: int) -> NoReturn:
    if frames:
        deeper(frames - 1)
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def close_outputs(request: Request) -> str:
    sys.stdout.close()
    sys.stderr.close()
    return "closed"


def close_outputs_and_fail(request: Request) -> NoReturn:
    close_outputs(request)
    raise AssertionError


def hang(request: Request) -> NoReturn:
    never()


def never() -> NoReturn:
    """Block on a pipe that nobody writes to."""
    reader, _ = os.pipe()
    os.read(reader, 1)
    raise AssertionError


def kill_the_server(request: Request) -> None:
    os.kill(os.getppid(), signal.SIGKILL)


def kill_the_server_and_stay(request: Request) -> NoReturn:
    alive(request["fifo"])
    kill_the_server(request)
    never()


def kill_the_server_and_leave_a_grandchild(request: Request) -> NoReturn:
    leave_a_grandchild(request)
    kill_the_server(request)
    never()


def leave_a_grandchild(request: Request) -> int:
    """Return the id of a child that holds the FIFO open and does not end."""
    alive(request["fifo"])
    grandchild = os.fork()
    if grandchild == 0:
        never()
    return grandchild


def hang_with_a_grandchild(request: Request) -> NoReturn:
    leave_a_grandchild(request)
    never()


def alive(fifo: str) -> None:
    """Hold the FIFO open for as long as this process lives."""
    os.write(os.open(fifo, os.O_WRONLY), b"!")


def chatter(request: Request) -> str:
    """Print what would be a reply, as Python and as C do."""
    reply = '{"ended": 1, "code": 0}\n'
    print(reply, flush=True)
    os.write(1, reply.encode())
    ctypes.CDLL(None).puts(reply.encode())
    return "an honest result"


def unwritable(request: Request) -> object:
    return object()


def leaves_state(request: Request) -> int:
    """Count the calls seen by this process: always the first in a fresh one."""
    calls = getattr(sys, "calls_of_a_job", 0) + 1
    sys.calls_of_a_job = calls  # type: ignore[attr-defined]
    return calls


def warm() -> None:
    sys.calls_of_a_job = 100  # type: ignore[attr-defined]


def warm_for_ever() -> NoReturn:
    never()


def lose_the_server_at_birth() -> None:
    """Let a child see, as soon as it looks, that its parent is another process."""
    os.getppid = lambda: 1
