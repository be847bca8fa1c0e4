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

from ..errors import UsageError
from ..model.environment import DeviceKind
from ..model.environment import Environment
from ..model.environment import Hardware
from ..model.metric import AUDITED
from ..model.metric import MIB
from ..model.metric import SENTINEL_COPY
from ..model.metric import SENTINEL_GEMM
from ..model.metric import SENTINEL_LAUNCH
from ..model.seat import Seat
from .compiled_code import CompiledCode
from .fetch_clock import Fetch
from .fetch_clock import TimedFetch
from .memory_picture import Picture
from .protocol import Block
from .protocol import Kernel
from .protocol import MemoryReading
from .protocol import Step
from .protocol import TraceEvent
from .scripted_evidence import scripted_picture
from .scripted_evidence import simulated
from .scripted_evidence import step_events


class ScriptedDevice:
    """Plays a script instead of reading clocks.

    The script is a JSON object from test name (the part of the node id after the
    last ``::``) to what that test shows; ``*`` stands for the others, and
    ``test_step#compare#before`` for one side of a comparison. Each value is
    one for all runs or a list by run, whose last holds on:
    ``step_ms``, ``fetch_ms`` (of a loader's batch; none by default), ``sentinel_ms`` (of each; none by default), ``first_ms`` (the first
    step's), ``growth`` (factor a step, for one
    that never becomes steady), ``mem_mb``, ``peak`` (what is held there: ``op``,
    ``phase``, ``at`` a line, ``mb`` by role, ``held`` by operation), ``syncs``,
    ``disturbance``, ``waiting`` (share of the time without a core), ``clock_mhz``,
    ``gpu`` (the fingerprint), ``schedule`` (of a host and a GPU in its profiled steps,
    as ``{"step": [["load", 900], ["launch", 40, 25]]}`` for ``SimulatedGpu``).
    ``hardware`` and ``software`` stand beside the tests, ``seats``: names of GPUs
    that take tests side by side, and are locked as GPUs are, and ``together``, which
    says that one process may play this script and that of another version in turns.
    """

    kind = DeviceKind.SCRIPTED
    torch_device = "cpu"
    unmeasurable: Mapping[str, str] = {
        "live_peak_bytes": "the scripted device has no storages",
        "peak_reserved_bytes": "the scripted device reserves nothing",
        **dict.fromkeys(
            ("alloc_retries", "device_allocs"), "the scripted device has no allocator"
        ),
        **{metric.name: "the scripted device copies nothing" for metric in AUDITED},
    }

    def __init__(self, script: Mapping[str, Any], run: int) -> None:
        self._script = script
        self._run = run
        self._test: Mapping[str, Any] = {}
        self._clock_ns = 0
        self._steps = 0

    @classmethod
    def read(cls, path: str, run: int) -> ScriptedDevice:
        """Read the script; raise ``UsageError`` where it is no JSON object."""
        try:
            script = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            msg = f"GPUPERF_SCRIPT={path}: expected a JSON object, found {error}"
            raise UsageError(msg) from None
        return cls(script, run)

    def seats(self) -> tuple[Seat, ...]:
        names = self._script.get("seats", [])
        return tuple(Seat(visible=n, lock=n, board=n) for n in names) or (Seat(),)

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
        sentinel_ms = self._value("sentinel_ms", None)

        def play() -> None:
            self._clock_ns += round(float(sentinel_ms) * 1e6)

        names = (SENTINEL_GEMM.name, SENTINEL_COPY.name, SENTINEL_LAUNCH.name)
        yield {} if sentinel_ms is None else dict.fromkeys(names, play)

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

    def picture_memory(
        self,
        step: Step,  # noqa: ARG002
        batches: Iterator[Sequence[object]],  # noqa: ARG002
    ) -> Picture | None:
        return None

    def blocks(self) -> Mapping[int, Block]:
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
            events.extend(step_events(int(self._value("syncs", 0)), start_us))
        return events
