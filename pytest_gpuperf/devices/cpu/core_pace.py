"""How long a core takes for a fixed loop: longer beside a neighbour that shares it.

On a virtual machine nothing else shows that another guest computes on the core's second
thread: no waiting is counted, and no clock can be read. On one of 2 cores the loop then
took 1.4 to 1.5 times as long, for seconds, and a training step 1.2 to 1.6 times.
"""

from __future__ import annotations

from typing import Final

from ..host_clock import HostClock


TURNS: Final = 1000
"""Turns of the loop: it takes 25 to 100 us, and almost no memory."""

LOOPS: Final = 2
"""Loops of a reading, of which the quicker counts: the first one after a step finds the
interpreter's code in no cache, and takes a fifth longer."""


def loop_ns() -> int:
    """Return the CPU time of the loop: what it waited for a core does not count."""
    start_ns, total = HostClock.thread_ns(), 0
    for number in range(TURNS):
        total += number
    return HostClock.thread_ns() - start_ns


class CorePace:
    """Times the loop, and keeps the least that it took: that of an undisturbed core."""

    def __init__(self) -> None:
        self.undisturbed_ns: int | None = None

    def read(self) -> int | None:
        """Run the loop; ``None`` where the clock of a thread is too coarse for it."""
        taken = min(loop_ns() for _ in range(LOOPS))
        if taken <= 0:
            return None
        self.undisturbed_ns = min(taken, self.undisturbed_ns or taken)
        return taken
