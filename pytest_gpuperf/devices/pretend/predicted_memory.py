"""What the caching allocator would make of the storages of a few steps."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from .caching_allocator import CachingAllocator
from .live_memory import MemoryEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Memory of one step, which starts at event ``first`` and ends before ``last``.

    ``requested_bytes`` is the sum that was asked for at most at once, ``allocated_bytes``
    that of the blocks given for it, ``reserved_bytes`` what was taken from the device by
    then. ``end_bytes`` is what is allocated at the end. ``peak`` is the event at which
    most was allocated; ``None`` in a step that takes no memory.
    """

    first: int
    last: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    end_bytes: int
    allocations: int
    peak: int | None


class _Course:
    """An allocator at work, and the sum of what was asked of it."""

    def __init__(self) -> None:
        self.allocator = CachingAllocator()
        self.requested_bytes = 0
        self._sizes: dict[int, int] = {}

    def follow(self, event: MemoryEvent) -> None:
        if event.is_birth:
            self._sizes[event.number] = event.nbytes
            self.requested_bytes += event.nbytes
            self.allocator.allocate(event.number, event.nbytes)
        else:
            self.requested_bytes -= self._sizes.pop(event.number)
            self.allocator.free(event.number)


def step_memories(
    events: Sequence[MemoryEvent], steps: Sequence[tuple[int, int]]
) -> tuple[StepMemory, ...]:
    """Simulate *events* from the first on and tell what each of *steps* needs.

    A step is the range of its events, and they are in order; events between them count
    towards what is alive.
    """
    course, found, done = _Course(), [], 0
    for first, last in steps:
        for event in events[done:first]:
            course.follow(event)
        found.append(_step(course, events, first, last))
        done = last
    return tuple(found)


def _step(
    course: _Course, events: Sequence[MemoryEvent], first: int, last: int
) -> StepMemory:
    allocator = course.allocator
    allocator.reset_peaks()
    requested, births, peak = course.requested_bytes, 0, None
    for index in range(first, last):
        before = allocator.peak_allocated_bytes
        course.follow(events[index])
        requested = max(requested, course.requested_bytes)
        births += events[index].is_birth
        if allocator.peak_allocated_bytes > before:
            peak = index
    return StepMemory(
        first=first,
        last=last,
        requested_bytes=requested,
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
        end_bytes=allocator.allocated_bytes,
        allocations=births,
        peak=peak,
    )


def alive_at(events: Sequence[MemoryEvent], index: int) -> Mapping[int, MemoryEvent]:
    """Births of the storages alive right after event *index*, by storage number."""
    alive: dict[int, MemoryEvent] = {}
    for event in events[: index + 1]:
        if event.is_birth:
            alive[event.number] = event
        else:
            del alive[event.number]
    return alive
