"""A picture of the simulated GPU's memory at the peak of a step."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

import torch

from ...model.finding import FindingKind, Location, Phase
from ...model.metrics import GROWTH
from ..memory_owners import current_node, owned_tensors, roles_of
from ..memory_picture import (
    NOTHING_LEFT,
    Change,
    Garbage,
    LiveBlock,
    Picture,
    StorageRole,
    course_of,
    held_by_place,
    picture_of,
    role_by_birth,
)
from ..source_lines import Site, site_of_caller
from .allocator import rounded
from .memory import LiveMemory, MemoryEvent, StepMemory, step_memories
from .program_audit import LoopTurns
from .recurrent import DROPOUT_STATES
from .tensor import is_gpu_tensor


Claims = Mapping[int, StorageRole]
"""Roles that owners give to storages, by their numbers."""


class Lookout:
    """Records sites from now on, and roles at the peak that *last* leads to expect.

    Earlier steps of a program had the last numbers ``ends``. Lines below the directory
    *root* are the project's.
    """

    def __init__(self, live: LiveMemory, root: str, last: StepMemory) -> None:
        self._live = live
        self._first = len(live.events)
        self._expected = (
            None if last.peak is None else self._first + last.peak - last.first
        )
        self._roles: Claims = {}
        self._claimed = claims_now(live)
        self.ends: Sequence[int] = ()
        self._site_before = live.site
        live.on_birth = self._look
        live.site = partial(site_here, root)

    def picture(self, peak: int | None) -> Picture | None:
        """Stop recording, and return what was alive at the event *peak*.

        ``None`` if that is not the expected event: what is alive at another moment
        explains nothing. Blocks are rounded as the allocator rounds them.
        """
        self._live.on_birth, self._live.site = None, self._site_before
        if peak is None or peak != self._expected:
            return None
        # The peak last: what was an activation there may belong to an owner later.
        over_step = {**self._claimed, **claims_now(self._live), **self._roles}
        seen, kept = with_kept(self._live, self._first, self.ends)
        at_peak = {**kept, **self._roles}
        return picture_at(seen, self._first, peak, at_peak, {**kept, **over_step})

    def _look(self, index: int) -> None:
        if index == self._expected:
            self._roles = claims_now(self._live)


def with_kept(
    live: LiveMemory, first: int, ends: Sequence[int]
) -> tuple[Sequence[MemoryEvent], Claims]:
    """Return the events, and what was kept before *first*: only that has its line.

    So have those of the step before. Steps so far had the last numbers *ends*.
    """
    kept = kept_at_places(alive_at(live.events, first - 1), ends)
    made_at = lines_made_at(live)
    older = ends[-2] if len(ends) > 1 else 0
    located = [
        e._replace(site=made_at.get(e.number, e.site) if e.number in kept else None)
        if e.number in kept or e.number <= older
        else e
        for e in live.events
    ]
    return located, dict.fromkeys(kept, StorageRole.KEPT)


def picture_at(
    events: Sequence[MemoryEvent],
    first: int,
    peak: int,
    at_peak: Claims,
    over_step: Claims,
) -> Picture:
    """Return what is alive at the event *peak* of a step that begins at *first*.

    Blocks are rounded as the allocator rounds them.
    """
    before = alive_at(events, first - 1) if first else {}
    alive = [_alive(birth, at_peak) for birth in alive_at(events, peak).values()]
    course = course_of(
        (_change(birth, over_step) for birth in before.values()),
        (_change(e, over_step) for e in events[first:] if not e.empties_cache),
    )
    picture = picture_of(alive, events[peak].op, events[peak].site)
    return replace(picture, course=course)


def _alive(birth: MemoryEvent, claimed: Claims) -> LiveBlock:
    return LiveBlock(
        nbytes=rounded(birth.nbytes),
        role=claimed.get(birth.number) or _role_of(birth),
        op=birth.op,
        site=birth.site,
    )


def site_here(root: str) -> Site:
    """Return the line of code that takes memory now."""
    phase = None if current_node() is None else Phase.BACKWARD
    return site_of_caller(root, phase=phase)


def claims_now(live: LiveMemory) -> Claims:
    """Ask the owners alive which storages they have."""
    # Their tensors may be of a user's subclass, which must not see these reads.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
        return roles_of(_claims(live))


def _claims(live: LiveMemory) -> Iterator[tuple[int, StorageRole]]:
    """Yield the numbers of storages and the roles their owners give them now."""
    of_cudnn = (DROPOUT_STATES.states, StorageRole.UNSEEN)
    for tensor, role in (*owned_tensors(), of_cudnn):
        number = live.number_of(tensor.inside) if is_gpu_tensor(tensor) else None
        if number is not None:
            yield number, role


def _change(event: MemoryEvent, claimed: Claims) -> Change:
    return Change(
        number=event.number,
        nbytes=rounded(event.nbytes) if event.is_birth else 0,
        role=claimed.get(event.number) or _role_of(event),
        phase=event.site.phase if event.site else None,
    )


def _role_of(birth: MemoryEvent) -> StorageRole:
    return StorageRole.WORKSPACES if birth.workspace else role_by_birth(birth.site)


# The memory of a program in which nothing of torch marks a step: turns of its loop do.

ASKED_AGAIN: Final = 1.25
"""Owners are asked when memory has grown by this factor: each time takes a look at all
objects, and what they own may be gone at the program's end."""


class LoopMemory:
    """Notes lines and owners from the first operation on, and where a loop turns.

    Lines below the directory *root* are the project's. *turned* is called where a turn of
    any loop is over; what it frees belongs to that turn.
    """

    def __init__(self, live: LiveMemory, root: str, turned: Callable[[], None]) -> None:
        self._live = live
        self._turns = LoopTurns(root)
        self._turned = turned
        self._begun: dict[int, int] = {}
        self._claimed: dict[int, StorageRole] = {}
        self._claimed_at = 0
        live.site = partial(site_here, root)
        live.before_birth = self._look

    def close(self) -> None:
        """Note nothing more but lines."""
        self._live.before_birth = None

    @property
    def place(self) -> Location | None:
        """A line of the loop; ``None`` if nothing repeats."""
        return self._turns.step.location

    def ranges(self) -> list[tuple[int, int]]:
        """Return the events of each turn; what comes before the loop is in the first."""
        starts = (self._begun.get(start, start) for start in self._turns.step.starts)
        return list(pairwise((0, *starts, len(self._live.events))))

    def picture(self) -> Picture | None:
        """Return what is alive at the peak of all; without a loop, from where all of it is."""
        self._claim()
        events = self._live.events
        memories = step_memories(events, self.ranges())
        # The last of equals: the first turn comes with what is before it.
        most = max(reversed(memories), key=lambda turn: turn.allocated_bytes)
        if most.peak is None:
            return None
        # What is there before the turn is no memory that its lines take.
        ends = last_numbers(
            events, [(r, r) for _, r in self.ranges() if r <= most.first]
        )
        seen, kept = with_kept(self._live, most.first, [*ends, *ends[-1:]])
        claimed = {**kept, **self._claimed}
        return picture_at(seen, most.first, most.peak, claimed, claimed)

    def _look(self) -> None:
        at = len(self._live.events)
        turn = self._turns.look(at)
        if turn == 1 or self._live.now_bytes > ASKED_AGAIN * self._claimed_at:
            self._claim()
        if turn:
            self._turned()
            self._begun[at] = len(self._live.events)

    def _claim(self) -> None:
        self._claimed.update(claims_now(self._live))
        self._claimed_at = self._live.now_bytes


# What the steps of a program leave alive: how fast that grows, and from which lines.


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


def is_rising(levels: Sequence[int]) -> bool:
    """Whether more bytes were alive after each step but the first than after the one before."""
    rises = [after - level for level, after in pairwise(levels[1:])]
    return bool(rises) and min(rises) > GROWTH.floor


def may_keep_more(alive: Births, ends: Sequence[int], levels: Sequence[int]) -> bool:
    """Whether steps that ended like this have left what later ones may add to.

    What a step left may come again after as many: every third one logs. A window of the last
    steps moves on. The first step makes the state that stays, but at other places.
    """
    again = kept_at_places(alive, ends)
    steps = {bisect_left(ends, number) for number in alive} - {0}
    steps |= {bisect_left(ends, number) for number in again}
    kept = sorted(steps - {len(ends) - 1, len(ends)})
    if len(ends) < LEAST_STEADY + NOT_STEADY:
        return is_rising(levels) or bool(kept or again)
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
