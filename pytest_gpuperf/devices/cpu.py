"""The CPU as a device: real times of one thread, live bytes, waits a GPU would have."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ..model.environment import DeviceKind
from ..model.environment import Environment
from ..model.environment import Hardware
from ..model.gpu_metric import BUSY
from ..model.memory_metric import ALLOC_RETRIES
from ..model.memory_metric import DEVICE_ALLOCS
from ..model.memory_metric import PEAK_ALLOCATED
from ..model.memory_metric import PEAK_RESERVED
from ..model.memory_metric import PREDICTED
from ..model.metric import AUDITED
from ..model.step_metric import FLOPS
from ..model.step_metric import LAUNCHED
from ..model.step_metric import OPS
from .compiled_code import CompiledCode
from .compiled_code import compiled_code
from .compiled_code import remember_compilations
from .fetch_clock import Fetch
from .fetch_clock import TimedFetch
from .fetch_clock import timed_by_the_host
from .memory_picture import Picture
from .other_processes import others_ns
from .protocol import Block
from .protocol import Kernel
from .protocol import MemoryReading
from .protocol import Step
from .protocol import TraceEvent
from .run_queue import run_queue_wait_ns


CPUINFO: Final = Path("/proc/cpuinfo")

SYSCTL: Final = "/usr/sbin/sysctl"

NO_COPIES: Final = "the cpu device sees no copies between host and device"

NO_LAUNCHES: Final = "the cpu device launches no kernels"

NO_ALLOCATOR: Final = "the cpu device has no CUDA allocator"


class CpuDevice:
    """Measures on the host. Opening it sets torch's number of *threads*.

    Findings name lines of the project below *root*.

    One is the default: the same step took 0.16 s with one thread and up to 12 s with
    two that had to share a busy core.
    """

    kind: Final = DeviceKind.CPU
    torch_device: Final = "cpu"
    unmeasurable: Final[Mapping[str, str]] = {
        PEAK_ALLOCATED.name: NO_ALLOCATOR,
        PEAK_RESERVED.name: NO_ALLOCATOR,
        ALLOC_RETRIES.name: NO_ALLOCATOR,
        DEVICE_ALLOCS.name: NO_ALLOCATOR,
        **dict.fromkeys((metric.name for metric in PREDICTED), NO_ALLOCATOR),
        **dict.fromkeys((metric.name for metric in AUDITED), NO_COPIES),
        **dict.fromkeys((OPS.name, FLOPS.name), "the cpu device counts no operations"),
        BUSY.name: "no kernel runs on a GPU here, measured on the cuda device only",
        **dict.fromkeys((metric.name for metric in LAUNCHED), NO_LAUNCHES),
    }

    def __init__(self, threads: int = 1, root: str = "") -> None:
        import torch

        torch.set_num_threads(threads)
        self._root = root
        self._threads = threads

    def environment(self) -> Environment:
        """CPU model with the cores this process may use; versions and threads."""
        from .software import software

        name = f"{cpu_model()} {usable_cores()} cores"
        return Environment(
            hardware=Hardware(kind=self.kind, name=name),
            software={**software(), "threads": str(self._threads)},
        )

    def preflight(self) -> None:
        """Raise ``PreflightError`` where no honest number can be read."""
        from .preflight import check_process

        check_process()

    def prepare(self, step: Step, test: str) -> Step:  # noqa: ARG002, the protocol's
        """Return *step* itself."""
        remember_compilations()
        return step

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        """Read the host's clock."""
        return timed_by_the_host(fetch)

    def synchronize(self) -> None:
        """Nothing is enqueued on a CPU."""

    def now_ns(self) -> int:
        """Read the monotonic host clock."""
        return time.perf_counter_ns()

    def process_ns(self) -> int:
        """CPU time of this process, all threads."""
        return time.process_time_ns()

    def waiting_ns(self) -> int | None:
        """Time this thread was runnable and had no core; ``None`` off Linux."""
        return run_queue_wait_ns()

    def others_ns(self) -> int | None:
        """CPU time of all processes but this one and its own; ``None`` off Linux."""
        return others_ns()

    def record_event(self) -> object:
        """Return ``None``: there are no streams."""
        return None

    def span_ms(self, start: object, end: object) -> float | None:  # noqa: ARG002, the protocol's
        """Return ``None``: there are no events."""
        return None

    def settling(self) -> tuple[int, ...]:
        """Return the compile counters."""
        from .compile_counters import compile_counters

        return compile_counters()

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
        """Ask Dynamo."""
        return compiled_code(run, self._root)

    def disturbance(self) -> str | None:
        """Return ``None``: contention shows in ``waiting_ns``."""
        return None

    def clock_mhz(self) -> int | None:
        """Return ``None``: cores have clocks of their own, and change them at once."""
        return None

    def fingerprint(self) -> str | None:
        """Return ``None``: processors of a model are alike, and tell no names."""
        return None

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        """Lend fixed kernels on the host."""
        import torch

        from .sentinels import ON_CPU
        from .sentinels import torch_sentinels

        return torch_sentinels(torch, "cpu", ON_CPU)

    def measure_memory(
        self,
        step: Step,
        arguments: Sequence[object],
        last: MemoryReading | None = None,
    ) -> MemoryReading:
        """Run one step and count its live bytes; look around at their peak after *last*."""
        if last is None or last.peak_moment is None:
            from .live_bytes import read_live_bytes

            return read_live_bytes(step, arguments)
        from .live_picture import read_looking_around

        return read_looking_around(step, arguments, last.peak_moment, self._root)

    def picture_memory(
        self,
        step: Step,  # noqa: ARG002
        batches: Iterator[Sequence[object]],  # noqa: ARG002
    ) -> Picture | None:
        """Every measurement has one."""
        return None

    def blocks(self) -> Mapping[int, Block]:
        """Return nothing: only storages that the step uses count."""
        return {}

    def record_allocations(
        self,
        step: Step,  # noqa: ARG002
        arguments: Sequence[object],  # noqa: ARG002
        path: Path,  # noqa: ARG002
    ) -> bool:
        """There is no caching allocator."""
        return False

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Record a step per batch with the waits of a GPU marked, compiling nothing."""
        from .dispatch import eager
        from .host_syncs import mark_syncs
        from .profiler import record_trace

        with eager():
            return record_trace(mark_syncs(step), batches, cuda=False)


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


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
