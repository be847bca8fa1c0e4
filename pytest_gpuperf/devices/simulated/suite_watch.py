"""Watches ordinary tests on the simulated GPU: syncs, copies and memory, test by test."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ...model.finding import FindingKind, Phase, WatchedTest
from ..garbage import HeldCollector, described_cycle, held_collector
from ..memory_picture import in_a_cycle
from ..source_lines import site_of_caller
from . import simulated_gpu
from .memory import LiveMemory, MemoryEvent, watched
from .memory_watch import WORKSPACE_BYTES, held_by_events, size_of_gpu_tensor
from .specification import memory_of
from .step_picture import AliveBirths
from .tensor import GpuTensor, is_gpu_tensor


if TYPE_CHECKING:
    from .gpu import SimulatedGpu


MOST_OBJECTS_OF_TEST: Final = 1_000_000
"""New objects of a test from which on the collector runs in it: memory ends at some time."""


MOST_KEEPERS: Final = 20
"""Tests for which it is found out what keeps their tensors: each costs a second."""


class SuiteMemory(LiveMemory):
    """The memory of the simulated GPU over many tests."""

    def __init__(self) -> None:
        super().__init__(workspace_bytes=WORKSPACE_BYTES)
        self.events = self.alive = AliveBirths()
        self._most = 0, 0
        self._kept_at_peak = 0

    def locate(self, tensor: Any) -> None:
        """Note no line: a suite says where memory was taken, not where a view of it was made."""

    def _born(self, nbytes: int, *, workspace: bool = False) -> int:
        before, before_now = self.peak_bytes, self.now_bytes
        number = super()._born(nbytes, workspace=workspace)
        if self.peak_bytes > before:
            # What is born is not among those that are kept yet.
            own = self.now_bytes - before_now if workspace else 0
            self._kept_at_peak = self.workspace_bytes + own
        return number

    def reset_peak(self) -> None:
        """Forget the peak, as a test may ask, but for the test's own."""
        self._most = self.test_peak
        super().reset_peak()
        self._kept_at_peak = self.workspace_bytes

    def begin_test(self) -> None:
        """Count the peak from now on."""
        self.reset_peak()
        self._most = 0, 0

    @property
    def test_peak(self) -> tuple[int, int]:
        """Most bytes since ``begin_test``, and which of them cuBLAS kept."""
        return max(self._most, (self.peak_bytes, self._kept_at_peak))


class SimulatedSuite:
    """Tells the tests of a process apart that run on the simulated GPU."""

    def __init__(self, gpu: SimulatedGpu, memory: SuiteMemory) -> None:
        self._gpu = gpu
        gpu.recorder.of_suite = True
        self._memory = memory
        self._first = 0
        self._excused: set[int] = set()
        self._keepers = 0
        self._held = ExitStack()
        self._collector = HeldCollector()

    def begin_test(self) -> None:
        """Forget what was recorded, but for what is alive."""
        self._gpu.begin_step()
        self._memory.begin_test()
        self._first = self._memory.last_number
        self._excused.clear()
        self._held.close()
        self._collector = self._held.enter_context(held_collector(MOST_OBJECTS_OF_TEST))

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Take what is born inside for a shared fixture's, which outlives the test."""
        first = self._memory.last_number
        try:
            yield
        finally:
            self._excused.update(range(first + 1, self._memory.last_number + 1))

    def end_test(self, *, passed: bool) -> WatchedTest:
        """Return what was recorded; a test that failed is kept alive by its traceback."""
        was_run, cycle = self._collector.was_run, ""
        before = left = self._left() if passed else {}
        if left:
            # Only now: to collect costs more than most tests.
            cycle = described_cycle(self._collector, size_of_gpu_tensor)
            left = self._left()
        self._held.close()
        garbage = () if was_run else before.keys() - left.keys()
        audit = self._gpu.end_step()
        peak, kept = self._memory.test_peak
        used = audit.touched_gpu or self._memory.last_number > self._first
        # What only a GPU can tell is no count.
        syncs = (found for found in audit.findings if found.is_certain)
        return WatchedTest(
            lines=(*syncs, *audit.copies),
            unchecked_ops=sum(found.per_step for found in audit.not_checked),
            peak_bytes=peak if used else 0,
            workspace_bytes=kept if used else 0,
            used=used,
            left=held_by_events(left.values(), FindingKind.LEFT, self._keeper(left)),
            garbage=held_by_events(
                (before[number] for number in sorted(garbage)),
                FindingKind.GARBAGE,
                in_a_cycle(cycle),
            ),
        )

    def _left(self) -> Mapping[int, MemoryEvent]:
        return {
            number: birth
            for number, birth in self._memory.alive.births.items()
            if number > self._first
            and number not in self._excused
            and not birth.workspace
        }

    def _keeper(self, left: Collection[int]) -> str:
        if not left or self._keepers >= MOST_KEEPERS:
            return ""
        self._keepers += 1
        numbered = {self._memory.number_of(g.inside): g for g in _gpu_tensors()}
        # The youngest first: the rest is mostly referenced by it.
        found = (numbered[n] for n in sorted(left, reverse=True) if n in numbered)
        return next(filter(None, map(keeper_of, found)), "")


def _gpu_tensors() -> Iterator[GpuTensor]:
    return (thing for thing in gc.get_objects() if is_gpu_tensor(thing))


@contextmanager
def watching_suite(root: str, gib: float) -> Iterator[SimulatedSuite]:
    """Simulate a GPU of *gib*, and watch what runs inside until the process ends.

    Findings name lines below the directory *root*.
    """
    memory = SuiteMemory()
    simulated = simulated_gpu(root)
    with memory_of(gib), simulated as gpu, watched(memory, None):
        # Nobody asks for the phase, and pytest's stacks are deep to read it off.
        gpu.recorder.phase = Phase.FORWARD
        memory.site = partial(site_of_caller, root, phase=Phase.FORWARD)
        yield SimulatedSuite(gpu, memory)


# What keeps a tensor alive, by name.

MOST_LINKS: Final = 6
MOST_LOOKED_AT: Final = 12
"""Each asks the collector for all that refers to one object."""


def keeper_of(thing: object) -> str:
    """Name the variable or attribute of a module that leads to *thing*; else nothing."""
    waiting: deque[tuple[object, str, int]] = deque([(thing, "", 0)])
    seen = {id(thing)}
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            break
        looked_at, path, links = waiting.popleft()
        for owner in gc.get_referrers(looked_at):
            if id(owner) in seen or _is_passing(owner, waiting):
                continue
            seen.add(id(owner))
            name = _module_name(owner)
            if name is not None:
                return f"{name}.{_key_of(owner, looked_at)}{path}"
            if links < MOST_LINKS:
                waiting.append((owner, _link(owner, looked_at) + path, links + 1))
    return ""


def _is_passing(owner: object, waiting: object) -> bool:
    """Whether *owner* is part of the search, or of the code that runs it."""
    if owner is waiting or isinstance(owner, FrameType):
        return True
    return type(owner).__name__ in {"list_iterator", "cell", "generator"}


def _module_name(owner: object) -> str | None:
    if not _is_dict(owner):
        return None
    name = owner.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    is_it = isinstance(module, ModuleType) and vars(module) is owner
    return name if is_it else None


def _is_dict(owner: object) -> TypeGuard[dict[Any, Any]]:
    return type(owner) is dict


def _key_of(owner: dict[Any, Any], value: object) -> str:
    return next((str(k) for k, v in owner.items() if v is value), "?")


def _is_of_object(names: dict[Any, Any]) -> bool:
    """Whether *names* are the attributes of an object, and no dictionary of its own."""
    owners = gc.get_referrers(names)
    return any(getattr(owner, "__dict__", None) is names for owner in owners)


def _link(owner: object, value: object) -> str:
    """Write the way from *owner* to *value*; containers show their brackets."""
    if _is_dict(owner):
        key = _key_of(owner, value)
        of_object = key.isidentifier() and _is_of_object(owner)
        return f".{key}" if of_object else f"[{key!r}]"
    if isinstance(owner, (list, tuple, set, deque)):
        return "[...]"
    attributes = getattr(owner, "__dict__", None)
    if isinstance(attributes, dict):
        found = next((k for k, v in attributes.items() if v is value), None)
        # The way may lead from an object to its ``__dict__`` and so be named there.
        return "" if found is None else f".{found}"
    return ""
