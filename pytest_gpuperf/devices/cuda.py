"""A CUDA device: torch's clock, events and allocator, and NVML for the machine."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import PreflightError
from ..errors import UsageError
from ..model.environment import DeviceKind
from ..model.environment import Environment
from ..model.environment import Hardware
from ..model.memory_metric import DRIVER_BYTES
from ..model.memory_metric import LIVE_PEAK
from ..model.memory_metric import NON_TORCH
from ..model.step_metric import FLOPS
from ..model.step_metric import OPS
from .blind_trace import refuse_blind_trace
from .compile_counters import compile_counters
from .compiled_code import CompiledCode
from .compiled_code import compiled_code
from .compiled_code import remember_compilations
from .cuda_memory import allocator_counters
from .cuda_memory import blocks_in_use
from .cuda_memory import read_memory
from .cuda_memory import record_allocations
from .cuda_memory import refuse_uncached_memory
from .cuda_settings import cuda_settings
from .fetch_clock import Fetch
from .fetch_clock import TimedFetch
from .fetch_clock import timed_by_the_host
from .memory_picture import Picture
from .nvml import Nvml
from .nvml import open_nvml
from .other_processes import others_ns
from .preflight import check_process
from .protocol import Block
from .protocol import Kernel
from .protocol import MemoryReading
from .protocol import Step
from .protocol import TraceEvent
from .run_queue import run_queue_wait_ns
from .sentinels import ON_CUDA
from .sentinels import torch_sentinels
from .software import software


FINGERPRINT: Final = 12
"""Hexadecimal digits that tell GPUs apart."""


def fingerprint_of(uuid: str) -> str:
    """Hash a UUID: baselines are public, and need not name a machine's parts."""
    return sha256(uuid.encode()).hexdigest()[:FINGERPRINT]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """The current CUDA device of this process, which may change with ``set_device``.

    Opening it creates no CUDA context; the first step does. A *disposable* process
    ends with its measurements. Findings name lines of the project below *root*.
    """

    torch: Any
    nvml_of: Callable[[str], Nvml | None] = open_nvml
    disposable: bool = False
    root: str = ""

    @classmethod
    def open(cls, *, disposable: bool = False, root: str = "") -> CudaDevice:
        """Import torch; raise ``UsageError`` where it sees no CUDA device."""
        import torch

        return cls.of(torch, disposable=disposable, root=root)

    @classmethod
    def of(cls, torch: Any, *, disposable: bool = False, root: str = "") -> CudaDevice:
        """Take *torch*; raise ``UsageError`` where it sees no CUDA device."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            available = torch.cuda.is_available()
        if available:
            return cls(torch=torch, disposable=disposable, root=root)
        msg = (
            f"--gpuperf-device=cuda was asked for, but torch {torch.__version__} sees "
            f"no CUDA device: {_why_no_cuda(torch, [str(w.message) for w in caught])}"
        )
        raise UsageError(msg)

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CUDA

    @property
    def torch_device(self) -> str:
        return "cuda"

    @property
    def unmeasurable(self) -> Mapping[str, str]:
        reasons = {
            LIVE_PEAK.name: "measured on the cpu device only",
            **dict.fromkeys(
                (OPS.name, FLOPS.name), "counted on the pretend device only"
            ),
        }
        if self._nvml() is None:
            unknown = (
                "NVML does not know this GPU (no driver library, or no nvidia-ml-py)"
            )
            reasons |= dict.fromkeys((DRIVER_BYTES.name, NON_TORCH.name), unknown)
        return reasons

    def environment(self) -> Environment:
        nvml = self._nvml()
        board = {} if nvml is None else nvml.settings()
        return Environment(
            hardware=Hardware(kind=DeviceKind.CUDA, name=self._name()),
            software=software() | cuda_settings(self.torch) | board,
        )

    def preflight(self) -> None:
        check_process()
        _refuse_sync_debug(self.torch)
        refuse_uncached_memory(self.torch.cuda)

    def prepare(self, step: Step, test: str) -> Step:  # noqa: ARG002
        remember_compilations()
        return step

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        return timed_by_the_host(fetch)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def process_ns(self) -> int:
        return time.process_time_ns()

    def waiting_ns(self) -> int | None:
        return run_queue_wait_ns()

    def others_ns(self) -> int | None:
        return others_ns()

    def record_event(self) -> object:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def span_ms(self, start: Any, end: Any) -> float | None:
        """``None`` for a negative time, which confidential computing can give."""
        span = float(start.elapsed_time(end))
        return None if span < 0 else span

    def settling(self) -> tuple[int, ...]:
        return compile_counters() + allocator_counters(self.torch.cuda)

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
        return compiled_code(run, self.root)

    def disturbance(self) -> str | None:
        nvml = self._nvml()
        if nvml is None:
            return None
        faults = nvml.throttling()
        if faults:
            return f"the GPU was throttled by {' and '.join(faults)}"
        return _neighbours(nvml)

    def clock_mhz(self) -> int | None:
        nvml = self._nvml()
        return None if nvml is None else nvml.sm_mhz()

    def fingerprint(self) -> str | None:
        return fingerprint_of(self._uuid())

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        return torch_sentinels(self.torch, self.torch_device, ON_CUDA)

    def measure_memory(
        self,
        step: Step,
        arguments: Sequence[object],
        last: MemoryReading | None = None,  # noqa: ARG002
    ) -> MemoryReading:
        """Run one step between two readings of the allocator."""
        return read_memory(self.torch, self._driver_bytes, step, arguments)

    def picture_memory(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Picture | None:
        """Run two steps and look around at the peak of all tensors on the GPU."""
        from .live_picture import Scope
        from .live_picture import picture_of_steps

        here = self.torch.device("cuda", self.torch.cuda.current_device())
        return picture_of_steps(step, batches, Scope(root=self.root, device=here))

    def blocks(self) -> Mapping[int, Block]:
        """Return what torch's allocator has lent."""
        return blocks_in_use(self.torch.cuda)

    def record_allocations(
        self, step: Step, arguments: Sequence[object], path: Path
    ) -> bool:
        record_allocations(self.torch, step, arguments, path)
        return True

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Raise ``PreflightError`` where the profiler was blind to the GPU."""
        from .profiler import record_trace
        from .sync_lines import lines_marked

        marked = lines_marked(self.torch, disposable=self.disposable, root=self.root)
        trace = record_trace(step, batches, cuda=True, marked=marked)
        refuse_blind_trace(trace)
        return trace

    def _nvml(self) -> Nvml | None:
        return self.nvml_of(self._uuid())

    def _uuid(self) -> str:
        index = self.torch.cuda.current_device()
        return str(self.torch.cuda.get_device_properties(index).uuid)

    def _name(self) -> str:
        """Name of the GPU, with its MIG profile where only NVML says it."""
        name = str(self.torch.cuda.get_device_name())
        nvml = self._nvml()
        seen = None if nvml is None else nvml.name()
        return seen if seen is not None and seen.startswith(f"{name} MIG ") else name

    def _driver_bytes(self) -> int | None:
        """Memory of this process as the driver sees it; ``None`` where it does not say."""
        nvml = self._nvml()
        return None if nvml is None else nvml.processes().get(os.getpid())


def _why_no_cuda(torch: Any, warned: Sequence[str]) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        return "install a build of torch with CUDA, or use --gpuperf-device=cpu"
    if visible is not None and visible.strip() in {"", "-1"}:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides them all, unset it"
    if warned:
        return warned[0].split(" (Triggered", 1)[0]
    return "check the driver with nvidia-smi"


def _refuse_sync_debug(torch: Any) -> None:
    if torch.cuda.get_sync_debug_mode() == 0:
        return
    msg = (
        "torch.cuda's sync debug mode is on, which does extra work at every "
        "synchronisation: call torch.cuda.set_sync_debug_mode(0) to measure"
    )
    raise PreflightError(msg)


def _neighbours(nvml: Nvml) -> str | None:
    """Other processes on the GPU, if this one is seen among them.

    Where it is not, process ids are those of another namespace (a container), and one
    of the strangers may be ourselves.
    """
    seen = set(nvml.processes())
    others = sorted(seen - {os.getpid()})
    if os.getpid() not in seen or not others:
        return None
    pids = ", ".join(map(str, others))
    return f"other processes computed on the GPU (pid {pids})"
