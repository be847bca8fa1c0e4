"""What a process does to be a rank: it can be asked where it is, and dies in time."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from typing import Final
from typing import NoReturn


PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal a process gets when its parent dies."""

Say = Callable[[Mapping[str, Any]], None]
"""Hands JSON from a rank to whoever watches it."""

Work = Callable[[int, int, Say], None]
"""What a rank does, by its number and what all are told: where they meet."""


def be_rank(
    work: Work, number: int, parent: int, pipes: tuple[int, int], folder: Path
) -> NoReturn:
    """Do *work* as rank *number* of *parent*, which is asked and told by *pipes*."""
    code = 1
    order, report = pipes
    try:
        os.setsid()
        _end_with(parent, order)
        _write_to(folder, number)
        told = int(os.read(order, 100))
        _follow(order)
        work(number, told, _say_to(report))
        code = 0
    except BaseException:  # noqa: BLE001 - its traceback is in the output file
        traceback.print_exc()
    finally:
        os._exit(code)  # whatever happens, or there would be a second parent


def _end_with(parent: int, order: int) -> None:
    """Die when *parent* dies; a parent that is dead already says nothing any more."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.close(order)
        os._exit(1)


def _follow(order: int) -> None:
    """Where no signal says that the parent died, the end of its orders does."""
    if sys.platform != "linux":
        threading.Thread(target=_die_at_the_end_of, args=(order,), daemon=True).start()


def _die_at_the_end_of(order: int) -> None:
    while os.read(order, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _write_to(folder: Path, number: int) -> None:
    output = os.open(output_of(folder, number), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    stack = stack_file(folder, number).open("w", encoding="utf-8")
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True, chain=False)


def output_of(folder: Path, number: int) -> Path:
    """File of what a rank prints."""
    return folder / f"rank{number}.txt"


def stack_file(folder: Path, number: int) -> Path:
    """File in which a rank says where it is when SIGUSR1 asks it."""
    return folder / f"rank{number}.stack"


def _say_to(report: int) -> Say:
    def say(message: Mapping[str, Any]) -> None:
        left = json.dumps({**message, "at": time.monotonic()}).encode() + b"\n"
        while left:
            left = left[os.write(report, left) :]

    return say
