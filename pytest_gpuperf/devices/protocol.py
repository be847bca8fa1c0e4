"""What a device must be able to do for the probes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Protocol

from ..model.environment import DeviceKind
from ..model.environment import Environment
from .compiled_code import CompiledCode
from .fetch_clock import Fetch
from .fetch_clock import TimedFetch
from .memory_picture import Picture


Step = Callable[..., object]
"""A training step; positional arguments come from the user's ``setup``."""

Kernel = Callable[[], object]
"""Work of a fixed size, enqueued and not waited for."""

TraceEvent = Mapping[str, Any]
"""One entry of ``traceEvents`` in a Chrome trace written by torch.profiler."""

STEP_RANGE = "gpuperf.step"
"""Name of the ``record_function`` range around each profiled step."""

SYNC_MARKER = "gpuperf.sync|"
"""Prefix of the ranges that carry a sync's ``file|line|function`` into a trace."""

LATE_MARKER = "gpuperf.synced|"
"""Prefix of the like of them that stand behind the call that waited."""

ALLOW_MARKER = "gpuperf.allow|"
"""Prefix of the ranges that carry an ``allow_sync``'s ``most|reason`` into a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """Bytes and counts of one step by metric name, and the bytes alive at its end.

    ``peak_moment`` numbers the moment of the peak where a device follows each tensor,
    ``picture`` is what it saw there where it looked around.
    """

    exact: Mapping[str, int]
    end_bytes: int | None
    peak_moment: int | None = None
    picture: Picture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Memory that an allocator lent: what was asked for, and what that takes."""

    requested_bytes: int
    allocated_bytes: int


class Device(Protocol):
    """Where a step runs and how it is watched.

    A device is opened in the measuring process, before the tests are collected.
    """

    @property
    def kind(self) -> DeviceKind:
        """Which of the kinds it is."""

    @property
    def torch_device(self) -> str:
        """What the user's ``.to(...)`` takes: ``cuda`` or ``cpu``."""

    @property
    def unmeasurable(self) -> Mapping[str, str]:
        """Why, by metric name, it cannot measure what it cannot measure."""

    def environment(self) -> Environment:
        """Hardware and software that the numbers will be read on."""

    def preflight(self) -> None:
        """Raise ``PreflightError`` where no honest number can be read."""

    def prepare(self, step: Step, test: str) -> Step:
        """Return the callable to run for *test*; real devices return *step* itself."""

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        """Let each *fetch* of a batch say how long this process was in there."""

    def synchronize(self) -> None:
        """Wait for everything enqueued on the device, on all streams."""

    def now_ns(self) -> int:
        """Read the monotonic host clock."""

    def process_ns(self) -> int:
        """CPU time of this process, all threads."""

    def waiting_ns(self) -> int | None:
        """Time this thread was runnable and had no core; ``None`` where unknown."""

    def others_ns(self) -> int | None:
        """CPU time of all processes but this one and its own; ``None`` where unknown."""

    def record_event(self) -> object:
        """Mark this point of the current stream; ``None`` without streams."""

    def span_ms(self, start: object, end: object) -> float | None:
        """Device time between two events, after a synchronisation."""

    def settling(self) -> tuple[int, ...]:
        """Return counters that stand still once compiling and allocating are over."""

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode | None:
        """Say what became of the compiled code that *run*, a warm step, runs.

        It is run for the question where something is to be told. Without it all code of
        the process counts. ``None`` where nothing can be seen.
        """

    def disturbance(self) -> str | None:
        """Say what disturbs the machine right now: throttling, another process."""

    def clock_mhz(self) -> int | None:
        """Read the processor's clock right now; ``None`` where it cannot be seen."""

    def fingerprint(self) -> str | None:
        """Tell this processor from others of its model; ``None`` where nothing does."""

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        """Lend fixed kernels by metric name, which show how fast the machine is."""

    def measure_memory(
        self,
        step: Step,
        arguments: Sequence[object],
        last: MemoryReading | None = None,
    ) -> MemoryReading:
        """Run one step with its peak memory watched.

        Where it costs little, look around at the peak, which is to come where *last*,
        the reading of the step before, had it.
        """

    def picture_memory(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Picture | None:
        """Run two steps to look around at the peak where a measurement does not."""

    def blocks(self) -> Mapping[int, Block]:
        """Return what is lent now, by address, if a peak counts it whoever holds it."""

    def record_allocations(
        self, step: Step, arguments: Sequence[object], path: Path
    ) -> bool:
        """Run one step and save to *path* what its allocator did, where there is one."""

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Run a step per batch under the profiler, each inside a ``STEP_RANGE``."""
