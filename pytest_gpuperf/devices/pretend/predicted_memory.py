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
    then. ``end_bytes`` is what is allocated at the end. ``retries`` counts how often the
    cache was emptied because the device had no more. ``peak`` is the event at which
    most was allocated; ``None`` in a step that takes no memory.
    """

    first: int
    last: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    end_bytes: int
    allocations: int
    retries: int
    peak: int | None


def _follow(allocator: CachingAllocator, event: MemoryEvent) -> None:
    if event.empties_cache:
        allocator.empty_cache()
    elif event.is_birth:
        allocator.allocate(event.number, event.nbytes)
    else:
        allocator.free(event.number)


def step_memories(
    events: Sequence[MemoryEvent], steps: Sequence[tuple[int, int]]
) -> tuple[StepMemory, ...]:
    """Simulate *events* from the first on and tell what each of *steps* needs.

    A step is the range of its events, and they are in order; events between them count
    towards what is alive.
    """
    allocator, done = CachingAllocator(), 0
    found: list[StepMemory] = []
    for first, last in steps:
        for event in events[done:first]:
            _follow(allocator, event)
        found.append(_step(allocator, events, first, last))
        done = last
    return tuple(found)


def _step(
    allocator: CachingAllocator, events: Sequence[MemoryEvent], first: int, last: int
) -> StepMemory:
    allocator.reset_peaks()
    retries, births, peak = 0, 0, None
    for index in range(first, last):
        before = allocator.allocated.peak
        _follow(allocator, events[index])
        births += events[index].is_birth
        retries += events[index].retry
        if allocator.allocated.peak > before:
            peak = index
    return StepMemory(
        first=first,
        last=last,
        requested_bytes=allocator.requested.peak,
        allocated_bytes=allocator.allocated.peak,
        reserved_bytes=allocator.reserved.peak,
        end_bytes=allocator.allocated.now,
        allocations=births,
        retries=retries,
        peak=peak,
    )


def alive_at(events: Sequence[MemoryEvent], index: int) -> Mapping[int, MemoryEvent]:
    """Births of the storages alive right after event *index*, by storage number."""
    alive: dict[int, MemoryEvent] = {}
    for event in events[: index + 1]:
        if event.is_birth:
            alive[event.number] = event
        elif not event.empties_cache:
            del alive[event.number]
    return alive
