"""Watches ordinary tests on the simulated GPU: waits, copies and memory, test by test."""

from __future__ import annotations

import gc
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ...model.finding import FindingKind
from ...model.finding import Phase
from ..garbage import HeldCollector
from ..garbage import described_cycle
from ..garbage import held_collector
from ..memory_picture import in_a_cycle
from ..source_lines import site_of_caller
from ..suite_watch import MOST_KEEPERS
from ..suite_watch import MOST_OBJECTS_OF_TEST
from ..suite_watch import TestAudit
from ..suite_watch import keeper_of
from . import pretend_gpu
from .kept_memory import AliveBirths
from .memory import LiveMemory
from .memory import MemoryEvent
from .memory import watched
from .memory_watch import WORKSPACE_BYTES
from .memory_watch import held_by_events
from .memory_watch import size_of_ghost
from .specification import memory_of
from .tensor import Ghost
from .tensor import is_ghost


if TYPE_CHECKING:
    from .gpu import PretendGpu


class SuiteMemory(LiveMemory):
    """The memory of the simulated GPU over many tests."""

    def __init__(self) -> None:
        super().__init__(workspace_bytes=WORKSPACE_BYTES)
        self.events = self.alive = AliveBirths()
        self.most_bytes = 0

    def reset_peak(self) -> None:
        """Forget the peak, as a test may ask, but for the test's own."""
        self.most_bytes = max(self.most_bytes, self.peak_bytes)
        super().reset_peak()

    def begin_test(self) -> None:
        """Count the peak from now on."""
        self.most_bytes = 0
        super().reset_peak()

    @property
    def test_peak(self) -> int:
        """Most bytes since ``begin_test``."""
        return max(self.most_bytes, self.peak_bytes)


class SimulatedSuite:
    """Tells the tests of a process apart that run on the simulated GPU."""

    simulates = True

    def __init__(self, gpu: PretendGpu, memory: SuiteMemory) -> None:
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

    def listening(self) -> AbstractContextManager[object]:
        """Return nothing to enter: the simulation listens all the time."""
        return nullcontext()

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Take what is born inside for a shared fixture's, which outlives the test."""
        first = self._memory.last_number
        try:
            yield
        finally:
            self._excused.update(range(first + 1, self._memory.last_number + 1))

    def end_test(self, *, passed: bool) -> TestAudit:
        """Return what was recorded; a test that failed is kept alive by its traceback."""
        was_run, cycle = self._collector.was_run, ""
        before = left = self._left() if passed else {}
        if left:
            # Only now: to collect costs more than most tests.
            cycle = described_cycle(self._collector, size_of_ghost)
            left = self._left()
        self._held.close()
        garbage = () if was_run else before.keys() - left.keys()
        audit = self._gpu.end_step()
        used = audit.touched_gpu or self._memory.last_number > self._first
        return TestAudit(
            # What only a GPU can tell is no count.
            waits=tuple(found for found in audit.findings if found.is_certain),
            copies=audit.copies,
            unjudged=sum(found.per_step for found in audit.not_judged),
            peak_bytes=self._memory.test_peak if used else 0,
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
        numbered = {self._memory.number_of(g.inside): g for g in _ghosts()}
        # The youngest first: the rest is mostly referenced by it.
        found = (numbered[n] for n in sorted(left, reverse=True) if n in numbered)
        return next(filter(None, map(keeper_of, found)), "")


def _ghosts() -> Iterator[Ghost]:
    return (thing for thing in gc.get_objects() if is_ghost(thing))


@contextmanager
def watching_suite(root: str, gib: float) -> Iterator[SimulatedSuite]:
    """Simulate a GPU of *gib*, and watch what runs inside until the process ends.

    Findings name lines below the directory *root*.
    """
    memory = SuiteMemory()
    simulated = pretend_gpu(root)
    with memory_of(gib), simulated as gpu, watched(memory, None):
        # Nobody asks for the phase, and pytest's stacks are deep to read it off.
        gpu.recorder.phase = Phase.FORWARD
        memory.site = partial(site_of_caller, root, phase=Phase.FORWARD)
        yield SimulatedSuite(gpu, memory)
