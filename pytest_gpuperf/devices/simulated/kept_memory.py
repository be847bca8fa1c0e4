"""What the steps of a program leave alive: how fast that grows, and from which lines."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

from ...model.finding import FindingKind
from ...model.metrics import GROWTH
from ..memory_picture import NOTHING_LEFT, Garbage, held_by_place
from ..source_lines import Site
from .allocator import rounded
from .memory import LiveMemory, MemoryEvent


class AliveBirths(list[MemoryEvent]):
    """Replaces the list of all *events*: it keeps only the births of living storages.

    A program or a suite takes memory millions of times.
    """

    def __init__(self, events: Iterable[MemoryEvent] = ()) -> None:
        super().__init__()
        self.births: dict[int, MemoryEvent] = {}
        for event in events:
            self.append(event)

    def append(self, event: MemoryEvent) -> None:
        """Take notice of *event*."""
        if event.is_birth:
            self.births[event.number] = event
        else:
            self.births.pop(event.number, None)


def alive_at(events: Sequence[MemoryEvent], index: int) -> Mapping[int, MemoryEvent]:
    """Births of the storages alive right after event *index*, by storage number."""
    return AliveBirths(events[: index + 1]).births


Births = Mapping[int, MemoryEvent]
"""Births of the storages alive, by storage number."""

LEAST_STEADY: Final = 4
"""Steps that growth is seen from, in two stretches."""

NOT_STEADY: Final = 3
"""The last two steps, whose variables still refer to their tensors, and the part after them.
The first step does not count either: it makes the state that stays."""

ABOUT_AS_FAST: Final = 2
"""Factor between two stretches: what only fills up becomes slower."""


def last_numbers(
    events: Sequence[MemoryEvent], ranges: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the number of the youngest storage at the end of each of the *ranges*."""
    born = (event.number if event.is_birth else 0 for event in events)
    youngest = list(accumulate(born, max, initial=0))
    return [youngest[last] for _, last in ranges]


def levels_at(
    events: Sequence[MemoryEvent], ranges: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the bytes alive at the end of each of the *ranges*."""
    sizes = {event.number: rounded(event.nbytes) for event in events if event.is_birth}
    changes = (
        sizes.get(event.number, 0) * (1 if event.is_birth else -1) for event in events
    )
    levels = list(accumulate(changes, initial=0))
    return [levels[last] for _, last in ranges]


def lines_made_at(live: LiveMemory) -> Mapping[int, Site]:
    """Return which line made the youngest tensor of each storage: a view keeps all of it."""
    found = ((live.number_of(tensor), site) for tensor, site in live.made_at.items())
    return {number: site for number, site in found if number is not None}


def kept_at_places(before: Births, ends: Sequence[int]) -> frozenset[int]:
    """Return what several steps, which had these last numbers, have left at one place."""
    steps: dict[tuple[str, Site | None], set[int]] = defaultdict(set)
    taken = {n: (b.op, b.site) for n, b in before.items() if b.site and not b.workspace}
    for number, place in taken.items():
        steps[place].add(bisect_left(ends, number))
    return frozenset(n for n, place in taken.items() if len(steps[place]) > 1)


JOINING: Final = frozenset(
    {"aten::cat", "aten::stack", "aten::constant_pad_nd", "aten::repeat"}
)
"""Operations whose result holds all that it is made of."""


def may_keep_more(alive: Births, ends: Sequence[int], levels: Sequence[int]) -> bool:
    """Whether steps that ended like this have left what later ones may add to.

    What a step left may come again after as many: every third one logs. A window of the last
    steps moves on.
    """
    steps = {bisect_left(ends, number) for number in alive} - {0}
    kept = sorted(steps - {len(ends) - 1, len(ends)})
    if len(ends) < LEAST_STEADY + NOT_STEADY:
        rises = [after - level for level, after in pairwise(levels[1:])]
        is_rising = bool(rises) and min(rises) > GROWTH.floor
        return is_rising or bool(kept or kept_at_places(alive, ends))
    return (
        bool(kept)
        and kept[0] <= len(ends) / 2
        and len(ends) <= 2 * kept[-1] + NOT_STEADY
    )


def growth_of(
    alive: Births,
    ends: Sequence[int],
    levels: Sequence[int],
    made_at: Mapping[int, Site],
) -> Garbage:
    """Return the bytes a step that steps have left, if both halves of them did alike.

    They had the last numbers *ends*, with the bytes *levels* alive then, and keep it by the
    lines that *made_at* names, or else by those that took it.
    """
    taken: list[list[MemoryEvent]] = [[] for _ in (*ends, None)]
    for number, birth in alive.items():
        taken[bisect_left(ends, number)].append(birth)
    steps = taken[1:-NOT_STEADY]
    if len(steps) < LEAST_STEADY:
        return NOTHING_LEFT
    sizes = [sum(rounded(birth.nbytes) for birth in births) for births in steps]
    nbytes = _steady(sizes)
    if not nbytes:
        return _longer(alive, ends[-2], levels[1:], made_at)
    # Of a long program only the first steps have lines.
    lined = [births for births in steps if not births or births[0].site]
    kept = [(b, made_at.get(b.number, b.site)) for births in lined for b in births]
    places = ((rounded(b.nbytes), b.op, site) for b, site in kept if site is not None)
    held = held_by_place(places, FindingKind.LEFT)
    each = (replace(f, held_bytes=f.held_bytes // len(lined)) for f in held)
    return Garbage(nbytes=nbytes, held=tuple(sorted(each, key=lambda f: -f.held_bytes)))


def _steady(sizes: Sequence[int]) -> int:
    """Return the average of *sizes*, or 0 if it is small or one half is much larger."""
    half, average = len(sizes) // 2, sum(sizes) // len(sizes)
    slow, fast = sorted(sum(s) / len(s) for s in (sizes[:half], sizes[half:]))
    is_steady = average > GROWTH.floor and fast <= ABOUT_AS_FAST * slow
    return average if is_steady else 0


def _longer(
    alive: Births, before: int, levels: Sequence[int], made_at: Mapping[int, Site]
) -> Garbage:
    """Return what each step adds to one tensor, made anew after the number *before*.

    It has all that the *levels* rose by.
    """
    rises = [after - level for level, after in pairwise(levels)]
    least, nbytes = sum(rises), _steady(rises) if min(rises) > 0 else 0
    joined = (b for n, b in alive.items() if n > before and b.op in JOINING)
    birth = max(joined, key=lambda b: b.nbytes, default=None)
    if not nbytes or birth is None or birth.nbytes < least:
        return NOTHING_LEFT
    site = made_at.get(birth.number, birth.site)
    places = [(nbytes, birth.op, site)] if site else []
    return Garbage(nbytes=nbytes, held=held_by_place(places, FindingKind.LEFT))
