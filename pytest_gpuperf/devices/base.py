"""The protocol that every device implements, and what more some of them can do.

A device inherits ``MeasuringDevice`` or ``EmulatingDevice``.
Code that was given any device asks for one of them by a property, never by its class.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import ErrorId, UsageError
from ..model.environment import DeviceKind, Environment
from ..model.finding import LineWork
from ..model.measurement import Measurement
from .compile import CompiledCode
from .memory_picture import Collecting, Garbage, Picture
from .process_time import HostClock


if TYPE_CHECKING:
    from ..model.finding import Finding
    from .audit_record import StepAudit, Totals
    from .simulated import MemoryAudit


# The time of fetching a batch, on the clock of this process.

Fetch = Callable[[], object]
"""Returns the next batch of a loader."""

TimedFetch = Callable[[], tuple[object, int]]
"""Returns it and the nanoseconds that the host was in there."""


def timed_by_the_host(fetch: Fetch) -> TimedFetch:
    """Read the host's clock before and after each *fetch*."""

    def timed() -> tuple[object, int]:
        start_ns = HostClock.wall_ns()
        batch = fetch()
        return batch, HostClock.wall_ns() - start_ns

    return timed


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWork:
    """CPU time of a thread and of its process, and how often it waited by itself."""

    thread_ns: int
    process_ns: int
    waits: int

    def alone_ns(self, since: ThreadWork) -> int | None:
        """Return the thread's time *since* then, if nothing but its work took time.

        Then it is what a clock on the wall shows on a machine that nobody else uses.
        ``None`` where the thread waited, or another one of the process worked.
        """
        thread_ns = self.thread_ns - since.thread_ns
        others_ns = self.process_ns - since.process_ns - thread_ns
        if self.waits != since.waits or others_ns > OTHERS_SHARE * thread_ns:
            return None
        return thread_ns if thread_ns > 0 else None


OTHERS_SHARE: Final = 0.01
"""Share of a thread's time up to which other threads of the process count as still."""

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
"""Prefix of such ranges that come after the call that waited, not around it."""

BACKWARD_MARKER = "gpuperf.backward|"
"""Prefix of such ranges that come after the backward pass in which a call waited."""

ALLOW_MARKER = "gpuperf.allow|"
"""Prefix of the ranges that carry an ``allow_sync``'s ``most|reason`` into a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """Bytes and counts of one step by metric name, and the bytes alive at its end.

    ``graphs`` counts the tensors alive before the step that keep an autograd graph, and
    ``nodes`` those of all these graphs.
    ``graph_bytes`` are those of its peaks that CUDA graphs keep for their replays;
    ``None`` if torch replayed none. ``garbage_bytes`` are those that only the garbage
    collector freed after it; ``None`` if nobody but the step runs that, as ``collecting``
    says.
    """

    exact: Mapping[str, int]
    end_bytes: int | None = None
    graphs: int | None = None
    nodes: int = 0
    graph_bytes: int | None = None
    garbage_bytes: int | None = None
    collecting: Collecting | None = None


class Device(Protocol):
    """Where the steps of a test run.

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

    def enter(self) -> None:
        """Change torch in this process as the device needs it, until ``leave``.

        Only a device that is not really there needs that.
        """
        return

    def leave(self) -> None:
        """Undo what ``enter`` changed."""
        return

    def preflight(self) -> None:
        """Raise ``PreflightError`` if no honest number can be read."""

    def disturbance(self) -> str | None:
        """Say what has disturbed the machine since the last call: throttling, another process.

        What disturbs it now, at the first call.
        """
        return None

    def now_ns(self) -> int:
        """Read the monotonic host clock."""

    def own_now_ns(self) -> int:
        """Read the clock for caps on what is exact: that of the host, unless it knows of
        time in which this process had no core."""
        return self.now_ns()

    @property
    def measuring(self) -> MeasuringDevice | None:
        """This device, if it times steps; else ``None``."""
        return None

    @property
    def is_ranked(self) -> bool:
        """Whether several ranks measure on it together."""
        return False

    @property
    def emulating(self) -> EmulatingDevice | None:
        """This device, if it predicts what a GPU would do; else ``None``."""
        return None


class MeasuringDevice(Device, Protocol):
    """A device that runs steps, times them and watches what they do."""

    @property
    def measuring(self) -> MeasuringDevice:
        """This device."""
        return self

    def prepare(self, step: Step, test: str) -> Step:
        """Return the callable to run for *test*; real devices return *step* itself."""

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        """Let each *fetch* of a batch say how long this process was in there."""
        return timed_by_the_host(fetch)

    def synchronize(self) -> None:
        """Wait for everything enqueued on the device, on all streams."""

    def process_ns(self) -> int:
        """CPU time of this process, all threads."""

    def work(self) -> ThreadWork | None:
        """What this thread did so far; ``None`` if its time is not that of the steps."""
        return None

    def waiting_ns(self) -> int | None:
        """Time this thread was runnable and had no core; ``None`` if unknown."""

    def all_waiting_ns(self) -> int | None:
        """Such time of all threads of this process and its descendants, added up."""

    def others_ns(self) -> int | None:
        """CPU time of all processes but this one and its own; ``None`` if unknown."""
        return None

    def core_ns(self) -> int | None:
        """CPU time of a fixed loop on the core of the steps; ``None`` if it says nothing."""
        return None

    def undisturbed_core_ns(self) -> int | None:
        """Return what that loop takes on a core that nobody shares, by all readings."""
        return None

    def record_event(self) -> object:
        """Mark this point of the current stream; ``None`` without streams."""
        return None

    def span_ms(self, start: object, end: object) -> float | None:
        """Device time between two events, after a synchronisation."""
        return None

    def settling(self) -> tuple[int, ...]:
        """Return counters that stop changing once compiling and allocating are over."""

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode | None:
        """Say what became of the compiled code that *run*, a warm step, runs.

        *run* is called only if there is something to report. Without it, all code of
        the process counts. ``None`` if the device cannot see compiled code.
        """

    def remarks(self) -> Sequence[str]:
        """Say what may have disturbed the machine, where nothing says whether it did."""
        return ()

    def clock_mhz(self) -> int | None:
        """Read the processor's clock right now; ``None`` if it cannot be seen."""
        return None

    def fingerprint(self) -> str | None:
        """Tell this processor from others of its model; ``None`` if nothing does."""
        return None

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        """Lend fixed kernels by metric name, which show how fast the machine is."""

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        """Run one step with its memory watched."""

    def leaked(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Sequence[Finding]:
        """Run two steps and say what the first took that is alive after the second."""
        return ()

    def garbage_of_step(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Garbage | None:
        """Run two steps and say what the first leaves that only the collector frees.

        ``None`` if nothing shows it.
        """
        return None

    def picture_memory(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Picture | None:
        """Run two steps to picture the peak, if that can be seen."""
        return None

    def blocks(self) -> Mapping[int, int]:
        """Return the bytes of blocks in use, by address, if a peak counts all owners'."""
        return {}

    def record_allocations(
        self, step: Step, arguments: Sequence[object], path: Path
    ) -> bool:
        """Run one step and save to *path* what its allocator did, if there is one."""
        return False

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Run a step per batch under the profiler, each inside a ``STEP_RANGE``.

        The trace names the lines of syncs.
        """

    def operations(
        self,
        step: Step,
        arguments: Sequence[object],
    ) -> tuple[LineWork, ...]:
        """Run one step and say what its lines run, if that can be counted."""
        return ()

    @property
    def lines_take_time(self) -> bool:
        """Whether naming lines makes the steps of a profile slower."""
        return False

    def plain_profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Do what ``profile`` does, without lines where they take time."""
        return self.profile(step, batches)

    def any_rank(self, answer: bool) -> bool:  # noqa: FBT001
        """Whether *answer* is yes on any of the ranks that measure together."""
        return answer

    def together(self, own: Measurement, run: Callable[[], object]) -> Measurement:
        """Return what all ranks measured; *run* makes another step of them.

        Where no others measure, that is this rank's *own*.
        """
        return own


def with_clock(device: Device) -> MeasuringDevice:
    """Return *device* as one that times steps; raise ``UsageError`` if it does not."""
    if device.measuring is None:
        msg = f"the device {device.kind.value} has no clock"
        raise UsageError(msg, ErrorId.GP413)
    return device.measuring


# A device that runs steps to see what a GPU would do.


class EmulatingDevice(Device, Protocol):
    """A device without a clock, which says what a step would do on a GPU.

    Findings name lines of the project below ``root``. ``between`` is what ran between
    the last two steps: ``setup``, and what the result of a step does when it is freed.
    """

    root: str
    between: Sequence[Totals]

    @property
    def emulating(self) -> EmulatingDevice:
        """This device."""
        return self

    def audit(
        self, step: Step, arguments: Sequence[object], *, locate_work: bool = False
    ) -> tuple[StepAudit, object]:
        """Run one step: what it would do on a GPU, and where if asked for; its result."""

    def watching_memory(self) -> AbstractContextManager[MemoryAudit]:
        """Watch the memory of the steps run inside, on a GPU of limited size."""

    @property
    def gave_up_values(self) -> str | None:
        """Why tensors have no values any more, if they lost them."""

    @property
    def made_unchecked(self) -> Sequence[Finding]:
        """What the project has made so far that cannot be judged, such as scripts."""

    @property
    def as_eager(self) -> Sequence[Finding]:
        """What has been judged as eager code so far, in this process."""
