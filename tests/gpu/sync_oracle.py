"""Whether code made the host wait for the GPU, found out without asking any API of it.

The GPU is put to sleep on the current stream before the code runs, and an event stands
behind the sleep. Where the event has not come when the code has returned, nothing
waited; where it has, the code waited for the sleep. That is blind to nothing and says
neither what waits nor how often.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


CALIBRATION_CYCLES: Final = 20_000_000
CHUNK_MS: Final = 10.0
"""Sleeps are queued in pieces: a kernel that runs for long may be ended by the driver."""

SHORTEST_SLEEP_MS: Final = 100.0
SLEEP_OVER_CODE: Final = 10.0
"""A sleep outlasts code that does not wait by far, or it would look as if it had."""

Code = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Asks *torch*'s current device; ``cycles_per_ms`` is the speed of its sleep."""

    torch: Any
    cycles_per_ms: float
    now_ns: Callable[[], int] = time.perf_counter_ns

    @classmethod
    def of(cls, torch: Any) -> Oracle:
        """Time a sleep between two events; the first one starts the device."""
        cuda = torch.cuda
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):
            start.record()
            cuda._sleep(CALIBRATION_CYCLES)
            end.record()
            end.synchronize()
        return cls(
            torch=torch, cycles_per_ms=CALIBRATION_CYCLES / start.elapsed_time(end)
        )

    def waits(self, prepare: Callable[[], tuple[Code, Code]]) -> bool:
        """Whether the host waits in the code that *prepare* makes anew each time.

        It makes what is to be enqueued behind the sleep, for streams and events that the
        code may wait for, and the code. That runs twice before: the first time to load
        and to allocate what is loaded and allocated once, the second to time it.
        """
        self._host_ms(prepare)
        sleep_ms = max(SHORTEST_SLEEP_MS, SLEEP_OVER_CODE * self._host_ms(prepare))
        enqueue, code = prepare()
        self.torch.cuda.synchronize()
        self._sleep(sleep_ms)
        awake = self.torch.cuda.Event()
        awake.record()
        enqueue()
        code()
        waited = bool(awake.query())
        self.torch.cuda.synchronize()
        return waited

    def _host_ms(self, prepare: Callable[[], tuple[Code, Code]]) -> float:
        enqueue, code = prepare()
        enqueue()
        self.torch.cuda.synchronize()
        start_ns = self.now_ns()
        code()
        host_ms = (self.now_ns() - start_ns) / 1e6
        self.torch.cuda.synchronize()
        return host_ms

    def _sleep(self, sleep_ms: float) -> None:
        cycles = int(CHUNK_MS * self.cycles_per_ms)
        for _ in range(math.ceil(sleep_ms / CHUNK_MS)):
            self.torch.cuda._sleep(cycles)
