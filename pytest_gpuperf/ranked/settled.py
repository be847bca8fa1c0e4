"""Collectives that are over when they return, so that a step's memory is the same twice.

A thread of gloo holds a collective, and with it its tensors, until a moment after it is
over. What the program lets go of meanwhile is alive for as long as the thread takes, which
was seen in one step of thirty. Here each is waited for, and its thread until it
sleeps, before the program goes on: then it alone holds the tensors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.protocol import Step
from ..devices.watching import Watching


THREAD: Final = "pt_gloo_runloop"
"""Name that ProcessGroupGloo gives the threads which run its collectives."""

SLEEPS: Final = "S"

MEETING_NEEDED: Final = ("send", "recv")
"""Beginnings of names of what may wait for something that the program has yet to do."""

WAITED: Final = "wait_tensor"
"""Where a functional collective is over; until then torch holds its tensors as well."""

PAUSE_SECONDS: Final = 0.0002

MOST_SECONDS: Final = 1.0
"""After which a thread that does not sleep is no longer waited for."""

TASKS: Final = Path("/proc/self/task")


def settled(step: Step) -> Step:
    """Return *step* with each of its collectives over before it goes on."""

    def run(*arguments: object) -> object:
        with _Settled():
            return step(*arguments)

    return run


class _Settled(Watching):
    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:  # noqa: ARG002  told of both
        name = op.name().partition("::")[2].partition(".")[0]
        if op.namespace == "c10d" and not name.startswith(MEETING_NEEDED):
            for work in _works_in(result):
                work.wait()
            wait_for_threads()
        elif op.namespace == "_c10d_functional" and name == WAITED:
            wait_for_threads()


def _works_in(result: Any) -> Iterator[Any]:
    """Give the handles of what was started among the results of an operation."""
    for value in result if isinstance(result, (tuple, list)) else (result,):
        if hasattr(value, "wait"):
            yield value


def wait_for_threads() -> None:
    """Let gloo's threads let go of collectives that are over."""
    until = time.monotonic() + MOST_SECONDS
    while any(state != SLEEPS for state in thread_states()):
        if time.monotonic() >= until:
            return
        time.sleep(PAUSE_SECONDS)


def thread_states(tasks: Path = TASKS) -> Iterator[str]:
    """Give the states of gloo's threads, as proc(5) has them; none where it is not."""
    with suppress(OSError):
        for task in tasks.iterdir():
            with suppress(OSError):  # a thread may have ended
                name, _, rest = (task / "stat").read_text().rpartition(") ")
                if name.endswith(f"({THREAD}"):
                    yield rest[:1]
