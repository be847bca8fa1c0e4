"""The CPU as a device: a clock of one thread, which also asks torch.compile."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Final

from ..model.environment import DeviceKind, Environment, Hardware
from ..model.finding import Finding, LineWork
from ..model.metrics import (
    AUDITED,
    BUSY,
    GARBAGE,
    GROWTH,
    OCCASIONAL,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    SYNCS,
)
from .base import Kernel, MeasuringDevice, MemoryReading, Step, ThreadWork, TraceEvent
from .compile import CompiledCode, compiled_code, remember_compilations
from .process_time import HostClock, OwnClock, usable_cores
from .sentinels import (
    CorePace,
    family_wait_ns,
    others_ns,
    run_queue_wait_ns,
    work_so_far,
)


CPUINFO: Final = Path("/proc/cpuinfo")

SYSCTL: Final = "/usr/sbin/sysctl"

A_CLOCK: Final = "the cpu device is a clock: run on the simulated GPU, the default"

JUDGED_ON_A_GPU: Final = (
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    GROWTH,
    GARBAGE,
    SYNCS,
    *AUDITED,
    *OCCASIONAL.values(),
)
"""Bytes, syncs, copies and launches: those of a step on a GPU, or of a simulated one."""


class HostDevice(MeasuringDevice):
    """A device with the clocks, and the compiler, of this process.

    Findings name lines of the project below ``root``.
    """

    root: str

    def prepare(self, step: Step, test: str) -> Step:  # noqa: ARG002, the protocol's
        """Return *step* itself."""
        remember_compilations()
        return step

    def now_ns(self) -> int:
        """Read the monotonic host clock."""
        return HostClock.wall_ns()

    def own_now_ns(self) -> int:
        """Leave out the time in which this process had no core."""
        return self._own_clock.now_ns()

    @cached_property
    def _own_clock(self) -> OwnClock:
        return OwnClock()

    def process_ns(self) -> int:
        """CPU time of this process, all threads."""
        return HostClock.process_ns()

    def waiting_ns(self) -> int | None:
        """Time this thread was runnable and had no core; ``None`` off Linux."""
        return run_queue_wait_ns()

    def all_waiting_ns(self) -> int | None:
        """Such time of all threads of this process and its descendants, added up."""
        return family_wait_ns()

    def others_ns(self) -> int | None:
        """CPU time of all processes but this one and its own; ``None`` off Linux."""
        return others_ns()

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
        """Ask Dynamo."""
        return compiled_code(run, self.root)

    def operations(
        self, step: Step, arguments: Sequence[object]
    ) -> tuple[LineWork, ...]:
        """Count them as they are dispatched."""
        # Imported late, as it imports torch at its top.
        from .operations import operations_of_step

        return operations_of_step(step, arguments, self.root)


class CpuDevice(HostDevice):
    """Measures on the host. Opening it sets torch's number of *threads*.

    Findings name lines of the project below *root*.

    One is the default: the same step took 0.16 s with one thread and up to 12 s with
    two that had to share a busy core.
    """

    kind: Final = DeviceKind.CPU
    torch_device: Final = "cpu"
    unmeasurable: Final[Mapping[str, str]] = {
        **dict.fromkeys((metric.name for metric in JUDGED_ON_A_GPU), A_CLOCK),
        BUSY.name: "no kernel runs on a GPU here, measured on the cuda device only",
    }

    def __init__(self, threads: int = 1, root: str = "") -> None:
        import torch

        torch.set_num_threads(threads)
        self.root = root
        self._threads = threads
        self._core = CorePace()

    def environment(self) -> Environment:
        """CPU model with the cores this process may use; versions and threads."""
        from .preflight import software

        name = f"{cpu_model()} {usable_cores()} cores"
        return Environment(
            hardware=Hardware(kind=self.kind, name=name),
            software={**software(), "threads": str(self._threads)},
        )

    def preflight(self) -> None:
        """Raise ``PreflightError`` if no honest number can be read."""
        from .preflight import check_process

        check_process()

    def synchronize(self) -> None:
        """Nothing is enqueued on a CPU."""

    def work(self) -> ThreadWork | None:
        """What this thread did so far; ``None`` off Linux."""
        return work_so_far()

    def core_ns(self) -> int | None:
        """Time a fixed loop: neighbours that share the core make it slower."""
        return self._core.read()

    def undisturbed_core_ns(self) -> int | None:
        """Return the least that it took."""
        return self._core.undisturbed_ns

    def settling(self) -> tuple[int, ...]:
        """Return the compile counters."""
        from .compile import compile_counters

        return compile_counters()

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        """Lend fixed kernels on the host."""
        import torch

        from .sentinels import ON_CPU, torch_sentinels

        return torch_sentinels(torch, "cpu", ON_CPU, self._threads)

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        """Run one step, and count the graphs of autograd that were alive before it."""
        from .garbage import held_collector
        from .memory_owners import graphs_alive

        with held_collector() as collector:
            if not collector.is_off:
                collector.collect()
            graphs, nodes = graphs_alive()
            step(*arguments)
        return MemoryReading(exact={}, graphs=graphs, nodes=nodes)

    def leaked(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Sequence[Finding]:
        """Follow the storages that the first of two steps makes."""
        # Imported late, as it imports torch at its top; this module must be importable
        # without it.
        from .live_memory import Scope, left_by_step
        from .memory_owners import HOST_DEVICE

        return left_by_step(step, batches, Scope(root=self.root, device=HOST_DEVICE))

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Record a step per batch."""
        from .profiler import record_trace

        return record_trace(step, batches, cuda=False)


def cpu_model() -> str:
    """Name of the processor from /proc/cpuinfo, else sysctl, else platform."""
    return _cpuinfo_model() or _sysctl_model() or platform.processor() or "cpu"


def _cpuinfo_model() -> str | None:
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE)
    return found.group(1) if found else None


def _sysctl_model() -> str | None:
    try:
        answer = subprocess.run(  # noqa: S603, a fixed command
            [SYSCTL, "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip() or None
