"""Processes of our own: one is started for an answer, or ends with its parent.

``spawn`` starts a fresh Python, which is left alone if we are killed: it may be a program
of the user's. What must start in milliseconds is forked by the fork
server (``runner.fork_server``), and ranks by the process that measures them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from mmap import mmap
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from ..files import hold_to_the_end, scratch_folder
from ..model.codec import encode


# A function of this package in a new process.

OWN_PACKAGES: Final = Path(__file__).absolute().parents[2]

_START: Final = (
    # No module of the working directory may get in the way: `python -c` puts "" first on
    # the path.
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from pytest_gpuperf.sharing.processes import main; del sys.path[0]; main()"
)

Reply = Callable[[Any], None]
"""Leaves the answer of a process, which is JSON. A later one takes its place."""


PASSIVE: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Lets a thread that waits for others sleep. Where nothing is timed that costs nothing; one
that spins takes, on a busy machine, many times the CPU time of the work."""


def spawn(
    entry: str,
    request: object,
    *,
    meanwhile: Callable[[Popen[bytes]], AbstractContextManager[object]] = lambda _: (
        nullcontext()
    ),
    **streams: Any,
) -> tuple[int, Any]:
    """Call *entry*, ``module:function``, in a new process: its exit code and its answer.

    The function gets the *request* in JSON and a ``Reply``; the answer is ``None`` if it
    left none. *streams* are those of ``Popen``.
    """
    with spawned(entry, request, **streams) as (process, answer):
        with meanwhile(process):
            code = _waited(process)
        return code, read_json(answer)


@contextmanager
def spawned(
    entry: str, request: object, **streams: Any
) -> Iterator[tuple[Popen[bytes], Path]]:
    """Start the process of ``spawn``: it, and the file of its answer."""
    with scratch_folder() as folder:
        order, answer = Path(folder, "order.json"), Path(folder, "answer.json")
        text = json.dumps({"entry": entry, "request": encode(request)})
        order.write_text(text, encoding="utf-8")
        command = [sys.executable, "-c", _START, str(OWN_PACKAGES), str(order)]
        with Popen([*command, str(answer)], **streams) as process:  # noqa: S603, our own
            yield process, answer


def read_json(answer: Path) -> Any:
    """Return what a process has left in the file *answer*; ``None`` for nothing."""
    # A file, not standard output: that belongs to what runs there.
    return json.loads(answer.read_text(encoding="utf-8") if answer.exists() else "null")


def _waited(process: Popen[bytes]) -> int:
    try:
        return process.wait()
    except BaseException:
        process.kill()
        raise


def main() -> None:
    """Do what this process was started for."""
    order_file, answer = map(Path, sys.argv[1:])
    hold_to_the_end(order_file.parent)
    order = json.loads(order_file.read_text(encoding="utf-8"))
    resolved(order["entry"])(order["request"], lambda found: write_json(answer, found))


def resolved(entry: str) -> Callable[..., Any]:
    """Return the function that *entry* names: ``module:function``."""
    module, _, name = entry.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def shared_numbers(path: Path, count: int) -> memoryview[int]:
    """Return *count* numbers, zeros at first, that all who ask for *path* share.

    A process counts in them for another one without a thread or a stream.
    """
    with path.open("a+b") as file:
        file.truncate(count * NUMBER_BYTES)
        return memoryview(mmap(file.fileno(), count * NUMBER_BYTES)).cast("q")


NUMBER_BYTES: Final = 8


def write_json(path: Path, answer: object) -> None:
    """Write *answer* so that a process that is killed meanwhile leaves no half of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(path)


# Signals while another process works.

SIGNALLED: Final = 128
"""Added by a shell to the number of the signal that ended a process."""

EXIT_INTERRUPTED = 130
"""Exit code of a process that Ctrl-C ended, as a shell gives it."""


@contextmanager
def interrupts_left_to_child() -> Iterator[list[int]]:
    """Outlive Ctrl-C, so that the child, which gets it too, can put things in order.

    Yields what is not empty after it.
    """
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminations_passed_on(child: Popen[bytes]) -> Iterator[None]:
    """Pass SIGTERM on to *child*, which ends by it, and outlive that."""
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def shell_code(returncode: int) -> int:
    """Exit code that a shell gives for *returncode* of ``subprocess``."""
    return returncode if returncode >= 0 else SIGNALLED - returncode


# Deaths that one process shares with another.

PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal a process gets when its parent dies."""

PR_SET_CHILD_SUBREAPER: Final = 36
"""prctl(2): orphans among a process's descendants become its children."""


def die_with(parent: int) -> None:
    """Be killed when *parent* dies, and end at once if it is dead already."""
    when_parent_dies(signal.SIGKILL)
    # The signal is sent for deaths after the call; the parent may have died between it
    # and the fork.
    if os.getppid() != parent:
        os._exit(1)


def when_parent_dies(number: int) -> None:
    """Get the signal *number* when the parent of this process dies; 0 for none."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of what loses its own below this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def kill_group(pid: int) -> None:
    """Kill the process group *pid*, as far as there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# How a process ended, and the end of its output.

FATAL: Final = "Fatal Python error"
FATAL_LINES: Final = 6
EXIT_LAST_LINES: Final = 30


def death(code: int) -> str:
    """Say how a process ended, by its exit code, which is negative for a signal."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"


def last_words(output: Path) -> str:
    """Return what says most about a death: the fatal error's top, else the last lines."""
    text = _text(output)
    fatal = _fatal(text).splitlines()
    return "\n".join(fatal[:FATAL_LINES] or text.splitlines()[-EXIT_LAST_LINES:]) or (
        "it printed nothing"
    )


def last_stack(output: Path) -> str:
    """Return the fatal error whole, with the stack that faulthandler gives it."""
    return _fatal(_text(output))


def _fatal(text: str) -> str:
    _, fatal, stack = text.rpartition(FATAL)
    return fatal + stack if fatal else ""


def _text(output: Path) -> str:
    try:
        return output.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
