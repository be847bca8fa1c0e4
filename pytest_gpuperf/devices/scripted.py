"""A device that reads its times from a script: the plugin's own tests are exact."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..model.environment import DeviceKind
from ..model.environment import DeviceSlot
from ..model.environment import Environment
from ..model.environment import Hardware
from ..model.finding import Location
from ..model.finding import Phase
from ..model.metric import MIB
from ..model.metrics import AUDITED
from ..model.metrics import OCCASIONAL_COPIES
from ..model.metrics import PERIOD_COPIES
from ..model.metrics import SENTINEL_COPY
from ..model.metrics import SENTINEL_GEMM
from ..model.metrics import SENTINEL_LAUNCH
from .base import STEP_RANGE
from .base import SYNC_MARKER
from .base import AllocatedBlock
from .base import AtPeak
from .base import Fetch
from .base import Kernel
from .base import MeasuringDevice
from .base import MemoryReading
from .base import Step
from .base import ThreadWork
from .base import TimedFetch
from .base import TraceEvent
from .compile import CompiledCode
from .memory_picture import Garbage
from .memory_picture import Held
from .memory_picture import Picture
from .memory_picture import StorageRole
from .source_lines import Site


# A host and a GPU on paper: the trace that their schedule would leave.
#
# The host needs ``LAUNCH_US`` to hand a kernel over and goes on; the GPU runs what was
# handed over in order, one stream for kernels and copies, one for collectives. Nothing
# is executed, and no time passes.

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

    def _add(  # noqa: PLR0913, PLR0917  the fields of an event
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


# Evidence that a script gives about a step: its trace, and memory at its peak.


def simulated(
    schedule: Sequence[Sequence[Any]], step: Step, batches: Sequence[Sequence[object]]
) -> Sequence[TraceEvent]:
    """Run a step per batch, and return the trace of a host and GPU on *schedule*."""
    gpu = SimulatedGpu()
    for arguments in batches:
        step(*arguments)
        gpu.play(schedule)
    return gpu.events


def scripted_picture(peak: Mapping[str, Any]) -> Picture:
    """Return the picture of a peak that a script describes."""
    file, line, function = peak["at"]
    location = Location(file=file, line=line, function=function)
    site = Site(location=location, innermost=location, phase=Phase(peak["phase"]))
    return Picture(
        op=peak["op"],
        site=site,
        by_role={StorageRole(name): round(mb * MIB) for name, mb in peak["mb"].items()},
        held=tuple(
            Held(op=op, site=site, nbytes=round(mb * MIB), blocks=1)
            for op, mb in peak["held"].items()
        ),
    )


def step_events(syncs: int, start_us: float, place: str) -> Iterator[TraceEvent]:
    """Yield what a profiler would have seen of a step that waits so often.

    Its first wait is at *place*: file, line and function; each other one a line below.
    """
    file, line, function = place.split(":")
    yield _event("user_annotation", STEP_RANGE, start_us, 1000.0)
    for index in range(syncs):
        at_us = start_us + 1 + 10 * index
        marker = f"{SYNC_MARKER}{file}|{int(line) + index}|{function}"
        yield _event("user_annotation", marker, at_us, 5.0)
        yield _event("cpu_op", "aten::_local_scalar_dense", at_us + 1, 3.0)


def _event(category: str, name: str, start_us: float, duration_us: float) -> TraceEvent:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start_us,
        "dur": duration_us,
        "pid": 1,
        "tid": 1,
    }


class ScriptedDevice(MeasuringDevice):
    """Plays a script instead of reading clocks.

    The script is a JSON object from test name (the part of the node id after the last
    ``::``) to what that test shows; ``*`` means all others, and
    ``test_step#compare#before`` one side of a comparison. A value is either one for all
    runs or a list with one per run; the last one is repeated: ``step_ms``, ``fetch_ms``
    (of a loader's batch; none by default), ``sentinel_ms`` (of each, or an object with
    one by the metric's name; none by default),
    ``first_ms`` (the first step's), ``compile_s`` and ``compile_warm_s`` (none by default), ``growth`` (factor per step, for one that never
    becomes steady), ``mem_mb``, ``peak`` (what is alive there: ``op``, ``phase``,
    ``at`` a line, ``mb`` by role, ``held`` by operation), ``syncs``, ``disturbance``,
    ``waiting`` (share of the time without a core), ``clock_mhz``, ``gpu`` (the
    fingerprint), ``schedule`` (of a host and a GPU in its profiled steps, as ``{"step":
    [["load", 900], ["launch", 40, 25]]}`` for ``SimulatedGpu``). Beside the tests there
    are ``hardware``, ``software``, ``slots`` (names of GPUs that take tests side by
    side and are locked as GPUs are) and ``together``, which says that one process may
    play this script and that of another version in turns.
    """

    kind = DeviceKind.SCRIPTED
    torch_device = "cpu"
    unmeasurable: Mapping[str, str] = {
        "live_peak_bytes": "the scripted device has no storages",
        "peak_reserved_bytes": "the scripted device reserves nothing",
        **dict.fromkeys(
            ("alloc_retries", "device_allocs"), "the scripted device has no allocator"
        ),
        **dict.fromkeys(
            (m.name for m in (*AUDITED, OCCASIONAL_COPIES, PERIOD_COPIES)),
            "the scripted device copies nothing",
        ),
    }

    def __init__(self, script: Mapping[str, Any], run: int) -> None:
        self._script = script
        self._run = run
        self._test: Mapping[str, Any] = {}
        self._clock_ns = 0
        self._steps = 0

    @classmethod
    def read(cls, path: str, run: int) -> ScriptedDevice:
        """Read the script; raise ``UsageError`` if it is no JSON object."""
        try:
            script = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            msg = f"GPUPERF_SCRIPT={path}: expected a JSON object, found {error}"
            raise UsageError(msg, ErrorId.GP403) from None
        return cls(script, run)

    def slots(self) -> tuple[DeviceSlot, ...]:
        names = self._script.get("slots", [])
        return tuple(DeviceSlot(visible=n, lock=n, board=n) for n in names) or (
            DeviceSlot(),
        )

    @classmethod
    def playing_both(cls, before: str, after: str, test: str) -> ScriptedDevice:
        """Play what two scripts have for *test*, as the sides of a comparison of it."""
        name = test.rpartition("::")[2]
        played = {
            f"{name}#before": cls.read(before, 0).played(name),
            f"{name}#after": cls.read(after, 0).played(name),
        }
        return cls(played, 0)

    @property
    def can_share(self) -> bool:
        return bool(self._script.get("together", False))

    def environment(self) -> Environment:
        name = self._script.get("hardware", "")
        software = self._of_run(self._script.get("software", {"torch": "2.13.0"}))
        return Environment(
            hardware=Hardware(kind=self.kind, name=name), software=software
        )

    def preflight(self) -> None:
        """Nothing can be wrong with a script."""

    def prepare(self, step: Step, test: str) -> Step:
        name = test.rpartition("::")[2]
        played = self.played(name)
        numbers = count(1)
        self._test = played
        self._steps = 0

        def scripted(*arguments: object) -> object:
            # Set at every call: the two sides of a comparison share this device and
            # take turns.
            self._test, self._steps = played, next(numbers)
            self._clock_ns += round(self._next_ms() * 1e6)
            return step(*arguments)

        return scripted

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        def timed() -> tuple[object, int]:
            batch = fetch()
            took_ns = round(float(self._value("fetch_ms", 0.0)) * 1e6)
            self._clock_ns += took_ns
            return batch, took_ns

        return timed

    def played(self, name: str) -> Mapping[str, Any]:
        """Return what the script has for the test *name*."""
        played: Mapping[str, Any] = self._script.get(name) or self._script.get("*", {})
        return played

    def _next_ms(self) -> float:
        step_ms = float(self._value("step_ms", 10.0))
        if self._steps == 1:
            return float(self._value("first_ms", step_ms))
        return step_ms * float(self._value("growth", 1.0)) ** self._steps

    def _value(self, name: str, default: object) -> Any:
        return self._of_run(self._test.get(name, default))

    def _of_run(self, value: Any) -> Any:
        return (
            value[min(self._run, len(value) - 1)] if isinstance(value, list) else value
        )

    def synchronize(self) -> None:
        """A script is always in step."""

    def now_ns(self) -> int:
        return self._clock_ns

    def process_ns(self) -> int:
        return self._clock_ns

    def work(self) -> ThreadWork | None:
        """Return ``None``: a script has no thread."""
        return None

    def waiting_ns(self) -> int:
        return round(self._clock_ns * float(self._value("waiting", 0.0)))

    def all_waiting_ns(self) -> int:
        return self.waiting_ns()

    def others_ns(self) -> int | None:
        """Return ``None``: a script knows of nobody else."""
        return None

    def record_event(self) -> object:
        return None

    def span_ms(self, start: object, end: object) -> float | None:  # noqa: ARG002
        return None

    def settling(self) -> tuple[int, ...]:
        return ()

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode | None:  # noqa: ARG002
        """Return ``None``: a script compiles nothing."""
        return None

    @contextmanager
    def compiling(self, caches: Path) -> Iterator[Callable[[], float]]:
        """Lend the script's ``compile_s``, or ``compile_warm_s`` if *caches* has it."""
        compiled = caches / "scripted"
        name = "compile_warm_s" if compiled.exists() else "compile_s"
        caches.mkdir(parents=True, exist_ok=True)
        compiled.touch()
        yield lambda: float(self._value(name, 0.0)) if self._steps else 0.0

    def disturbance(self) -> str | None:
        reason: str | None = self._value("disturbance", None)
        return reason

    def clock_mhz(self) -> int | None:
        mhz: int | None = self._value("clock_mhz", None)
        return mhz

    def counters(self) -> Mapping[str, float]:
        per_step: Mapping[str, float] = self._value("counters", {})
        return {name: value * self._steps for name, value in per_step.items()}

    def at_peak(self, step: Step, arguments: Sequence[object]) -> AtPeak:
        """Run a step; the script has ``at_peak_ms``, or knows no peak."""
        step(*arguments)
        ms: float | None = self._value("at_peak_ms", None)
        why = "the script has no peak" if ms is None else "of the script"
        return AtPeak(ms=ms, why=why)

    def fingerprint(self) -> str | None:
        gpu: str | None = self._value("gpu", None)
        return gpu

    @contextmanager
    def sentinels(self) -> Iterator[Mapping[str, Kernel]]:
        found = self._value("sentinel_ms", {})
        names = (SENTINEL_GEMM.name, SENTINEL_COPY.name, SENTINEL_LAUNCH.name)
        times = found if isinstance(found, Mapping) else dict.fromkeys(names, found)
        yield {name: self._kernel(float(times[name])) for name in names if times}

    def _kernel(self, ms: float) -> Kernel:
        def play() -> None:
            self._clock_ns += round(ms * 1e6)

        return play

    def measure_memory(
        self,
        step: Step,
        arguments: Sequence[object],
        last: MemoryReading | None = None,
    ) -> MemoryReading:
        step(*arguments)
        peak_bytes = round(float(self._value("mem_mb", 100.0)) * MIB)
        leak_mb = self._value("leak_mb", None)
        peak = self._value("peak", None)
        return MemoryReading(
            exact={"peak_allocated_bytes": peak_bytes},
            end_bytes=None if leak_mb is None else round(leak_mb * MIB) * self._steps,
            picture=None if last is None or peak is None else scripted_picture(peak),
        )

    def left_behind(
        self,
        step: Step,  # noqa: ARG002
        batches: Iterator[Sequence[object]],  # noqa: ARG002
    ) -> Sequence[Held]:
        """No script says what stays."""
        return ()

    def garbage_of_step(
        self,
        step: Step,  # noqa: ARG002
        batches: Iterator[Sequence[object]],  # noqa: ARG002
    ) -> Garbage | None:
        """No script says what only the collector frees."""
        return None

    def picture_memory(
        self,
        step: Step,  # noqa: ARG002
        batches: Iterator[Sequence[object]],  # noqa: ARG002
    ) -> Picture | None:
        return None

    def blocks(self) -> Mapping[int, AllocatedBlock]:
        """The script says what a step needs by itself."""
        return {}

    def record_allocations(
        self, step: Step, arguments: Sequence[object], path: Path
    ) -> bool:
        snapshot = self._value("snapshot", None)
        if snapshot is None:
            return False
        step(*arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(snapshot))
        return True

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        schedule = self._value("schedule", None)
        if schedule is not None:
            return simulated(schedule["step"], step, batches)
        events: list[TraceEvent] = []
        for arguments in batches:
            start_us = self._clock_ns / 1e3
            step(*arguments)
            syncs = int(self._value("syncs", 0))
            place = str(self._value("waits_at", "train.py:12:step"))
            events.extend(step_events(syncs, start_us, place))
        return events
