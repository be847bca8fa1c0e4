"""A host and a GPU on paper: the trace that their schedule would leave.

The host needs ``LAUNCH_US`` to hand a kernel over and goes on; the GPU runs what was handed
over in order, one stream for kernels and copies, one for collectives. Nothing is executed,
and no time passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pytest_gpuperf.devices.base import STEP_RANGE, SYNC_MARKER, TraceEvent


LAUNCH_US: Final = 8.0
SYNC_US: Final = 2.0

LINES: Final = {"copy": 11, "item": 21}
"""Lines of ``train.py`` that the simulated step waits in."""


class SimulatedGpu:
    """Collects the events of a simulated program; times are in microseconds."""

    def __init__(self) -> None:
        self.host_us = 0.0
        self.events: list[TraceEvent] = []
        self._gpu_us = 0.0
        self._collective_us = 0.0
        self._calls = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """One training step."""
        start_us = self.host_us
        yield
        self._add("user_annotation", STEP_RANGE, start_us, self.host_us)

    def load(self, length_us: float) -> None:
        """Wait for the loader."""
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._add("user_annotation", name, self.host_us, self.host_us + length_us)
        self.host_us += length_us

    def work(self, length_us: float) -> None:
        """Do something else on the host."""
        self.host_us += length_us

    def launch(self, kernel_us: float, count: int = 1) -> None:
        """Launch kernels, and do not wait for them."""
        for _ in range(count):
            call = self._call("cudaLaunchKernel", LAUNCH_US)
            self._gpu_us = self._run("kernel", "gemm", self._gpu_us, kernel_us, call)

    def copy(self, length_us: float) -> None:
        """Copy a batch from pageable memory to the GPU, and wait for it."""
        start_us = self.host_us
        self._copy("Pageable", length_us)
        self._wait()
        self._add("cpu_op", "aten::copy_", start_us, self.host_us)

    def copy_pinned(self, length_us: float) -> None:
        """Copy a batch from pinned memory to the GPU, and go on."""
        start_us = self.host_us
        self._copy("Pinned", length_us)
        self._add("cpu_op", "aten::copy_", start_us, self.host_us)

    def item(self) -> None:
        """Read a number of the GPU."""
        start_us = self.host_us
        call = self._call("cudaMemcpyAsync", LAUNCH_US, line="item")
        name = "Memcpy DtoH (Device -> Pinned)"
        self._gpu_us = self._run("gpu_memcpy", name, self._gpu_us, 1.0, call)
        self._wait()
        self._add("cpu_op", "aten::_local_scalar_dense", start_us, self.host_us)

    def all_reduce(self, length_us: float) -> None:
        """Join gradients on another stream, once the kernels so far are through."""
        call = self._call("cudaLaunchKernel", LAUNCH_US)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
        ready_us = max(self._gpu_us, self._collective_us)
        self._collective_us = self._run("kernel", name, ready_us, length_us, call)

    def join(self) -> None:
        """Let later kernels wait for the collectives so far; the host does not."""
        self._gpu_us = max(self._gpu_us, self._collective_us)

    def play(self, schedule: Sequence[Sequence[Any]]) -> None:
        """Do in a step what each entry names: ``["launch", 100, 500]``."""
        with self.step():
            for name, *arguments in schedule:
                getattr(self, name)(*arguments)

    def _copy(self, memory: str, length_us: float) -> None:
        call = self._call("cudaMemcpyAsync", LAUNCH_US, line="copy")
        name = f"Memcpy HtoD ({memory} -> Device)"
        self._gpu_us = self._run("gpu_memcpy", name, self._gpu_us, length_us, call)

    def _call(self, name: str, length_us: float, *, line: str | None = None) -> int:
        self._calls += 1
        start_us, self.host_us = self.host_us, self.host_us + length_us
        if line is not None:
            marker = f"{SYNC_MARKER}train.py|{LINES[line]}|step"
            self._add("user_annotation", marker, start_us, self.host_us)
        start_us += 0.2
        self._add("cuda_runtime", name, start_us, self.host_us, self._calls)
        return self._calls

    def _run(
        self, category: str, name: str, free_us: float, length_us: float, call: int
    ) -> float:
        start_us = max(free_us, self.host_us)
        self._add(category, name, start_us, start_us + length_us, call, thread=7)
        return start_us + length_us

    def _wait(self) -> None:
        start_us = self.host_us
        self.host_us = max(self.host_us, self._gpu_us) + SYNC_US
        self._calls += 1
        self._add(
            "cuda_runtime",
            "cudaStreamSynchronize",
            start_us,
            self.host_us,
            self._calls,
        )

    def _add(
        self,
        category: str,
        name: str,
        start_us: float,
        end_us: float,
        correlation: int | None = None,
        thread: int = 1,
    ) -> None:
        event: dict[str, Any] = {
            "ph": "X",
            "cat": category,
            "name": name,
            "ts": start_us,
            "dur": end_us - start_us,
            "pid": 1,
            "tid": thread,
        }
        if correlation is not None:
            event["args"] = {"correlation": correlation}
        self.events.append(event)
