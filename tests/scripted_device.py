"""A device that reads its times from a script: the plugin's own tests are exact."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from gpu_on_paper import SimulatedGpu

from pytest_gpuperf.devices.base import (
    STEP_RANGE,
    SYNC_MARKER,
    Fetch,
    Kernel,
    MeasuringDevice,
    MemoryReading,
    Step,
    TimedFetch,
    TraceEvent,
)
from pytest_gpuperf.devices.compile import CompiledCode
from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.environment import (
    DeviceKind,
    DeviceSlot,
    Environment,
    Hardware,
)
from pytest_gpuperf.model.metrics import (
    AUDITED,
    MIB,
    OCCASIONAL_COPIES,
    SENTINEL_COPY,
    SENTINEL_GEMM,
    SENTINEL_LAUNCH,
)


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


def step_events(syncs: int, start_us: float, place: str) -> Iterator[TraceEvent]:
    """Yield what a profiler would have seen of a step that waits so often.

    Its first sync is at *place*: file, line and function; each other one a line below.
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
    ``first_ms`` (the first step's), ``growth`` (factor per step, for one that never
    becomes steady), ``mem_mb``, ``syncs``, ``disturbance``,
    ``waiting`` (share of the time without a core), ``clock_mhz``, ``gpu`` (the
    fingerprint), ``schedule`` (of a host and a GPU in its profiled steps, as ``{"step":
    [["load", 900], ["launch", 40, 25]]}`` for ``SimulatedGpu``). Next to the tests there
    are ``hardware``, ``software``, ``slots`` (names of GPUs, which are
    locked as such) and ``together``, which says that one process may
    play this script and that of another version in turns.
    """

    kind = DeviceKind.SCRIPTED
    torch_device = "cpu"
    unmeasurable: Mapping[str, str] = {
        "peak_reserved_bytes": "the scripted device reserves nothing",
        **dict.fromkeys(
            (m.name for m in (*AUDITED, OCCASIONAL_COPIES)),
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

    def waiting_ns(self) -> int:
        return round(self._clock_ns * float(self._value("waiting", 0.0)))

    def all_waiting_ns(self) -> int:
        return self.waiting_ns()

    def settling(self) -> tuple[int, ...]:
        return ()

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode | None:
        """Return ``None``: a script compiles nothing."""
        return None

    def disturbance(self) -> str | None:
        reason: str | None = self._value("disturbance", None)
        return reason

    def clock_mhz(self) -> int | None:
        mhz: int | None = self._value("clock_mhz", None)
        return mhz

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
    ) -> MemoryReading:
        step(*arguments)
        peak_bytes = round(float(self._value("mem_mb", 100.0)) * MIB)
        leak_mb = self._value("leak_mb", None)
        return MemoryReading(
            exact={"peak_allocated_bytes": peak_bytes},
            end_bytes=None if leak_mb is None else round(leak_mb * MIB) * self._steps,
        )

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
