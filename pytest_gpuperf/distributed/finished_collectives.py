"""Collectives that are over when they return, so that a step's memory is repeatable.

A thread of gloo keeps a collective, and its tensors, until a moment after it is over.
What the program frees meanwhile stays alive for as long as the thread takes, as was
seen in one step of thirty. Here the program waits for each collective, and then for its
thread to sleep, before it goes on: then only the program owns the tensors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.base import Step
from ..devices.cpu.observer import Watching
from ..devices.host_clock import HostClock


THREAD: Final = "pt_gloo_runloop"
"""Name that ProcessGroupGloo gives the threads which run its collectives."""

SLEEPS: Final = "S"

PEER_NEEDED: Final = ("send", "recv")
"""Beginnings of names of operations that may wait for what the program does later."""

WAITED: Final = "wait_tensor"
"""The end of a functional collective; until then torch keeps its tensors as well."""

FINISHED_PAUSE_SECONDS: Final = 0.0002

MOST_COLLECTIVE_SECONDS: Final = 1.0
"""Seconds after which a thread that does not sleep is no longer waited for."""

TASKS: Final = Path("/proc/self/task")


def settled(step: Step) -> Step:
    """Return *step* with each of its collectives over before it goes on."""

    def run(*arguments: object) -> object:
        with _Settled():
            return step(*arguments)

    return run


class _Settled(Watching):
    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:  # noqa: ARG002  called with both
        name = op.name().partition("::")[2].partition(".")[0]
        # A send or a receive is left alone: to wait for it here could wait for a peer
        # that needs this rank's next operation first.
        if op.namespace == "c10d" and not name.startswith(PEER_NEEDED):
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
    """Wait until gloo's threads have released collectives that are over."""
    # gloo tells nobody when it drops its reference. A thread that sleeps waits for its
    # next collective, so its state is the only sign from outside.
    until_ns = HostClock.wall_ns() + MOST_COLLECTIVE_SECONDS * 1e9
    while any(state != SLEEPS for state in thread_states()):
        if HostClock.wall_ns() >= until_ns:
            return
        time.sleep(FINISHED_PAUSE_SECONDS)


def thread_states(tasks: Path = TASKS) -> Iterator[str]:
    """Give the states of gloo's threads, as proc(5) has them; none where it is not."""
    with suppress(OSError):
        for task in tasks.iterdir():
            # A thread may end between the listing and the reading.
            with suppress(OSError):
                name, _, rest = (task / "stat").read_text().rpartition(") ")
                if name.endswith(f"({THREAD}"):
                    yield rest[:1]
