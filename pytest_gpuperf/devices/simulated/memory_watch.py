"""Watches the memory of steps, and nothing else of them."""

from __future__ import annotations

import gc
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

import torch

from ...model.finding import Finding, FindingKind, Location
from ..audit_record import StepMark
from ..garbage import HeldCollector, described_cycle, held_collector, least_left
from ..memory_owners import graphs_alive, oldest_graphs
from ..memory_picture import (
    NOTHING_LEFT,
    Garbage,
    Picture,
    graphs_left,
    held_by_place,
    remark_on_graphs,
)
from .allocator import rounded, settings_made
from .backward_rules import ENGINE_ALONE
from .memory import (
    SIMULATED_MEMORY,
    LiveMemory,
    MemoryEvent,
    StepMemory,
    nbytes_of,
    step_memories,
    watched,
)
from .program_steps import ProgramSteps
from .recorder import WATCH
from .step_picture import (
    AliveBirths,
    Lookout,
    LoopMemory,
    alive_at,
    growth_of,
    is_rising,
    last_numbers,
    levels_at,
    lines_made_at,
    may_keep_more,
    site_here,
)
from .tensor import is_gpu_tensor


T = TypeVar("T")

WORKSPACE_BYTES: Final = 32 * 2**20
"""The workspace of cuBLAS, one a thread and stream: 4096 times 8 KiB on GPUs of compute
capability 9.0, which the simulated GPU says it is (CUDABlas.cpp of torch 2.13, and NVIDIA's
cuBLAS documentation on Hopper). GPUs before it take 8.125 MiB."""


class MemoryAudit:
    """What a few steps, one after the other, do to the memory of the simulated GPU.

    ``graphs`` counts after each the tensors alive that keep an autograd graph and the nodes
    of these, ``freed`` the bytes that the *collector* freed after it; ``None`` if the step
    ran that itself.
    """

    def __init__(self, live: LiveMemory, collector: HeldCollector) -> None:
        self.live = live
        self.collector = collector
        self._steps: list[tuple[int, int]] = []
        self.graphs: list[tuple[int, int]] = []
        self.freed: list[int | None] = []

    @property
    def events(self) -> Sequence[MemoryEvent]:
        """Everything seen so far, in the steps and between them."""
        return self.live.events

    def step(self, run: Callable[[], object]) -> None:
        """Run one step and record only its memory: to record both would cost too much.

        Its result is dropped, as in a training loop. What only the garbage collector
        can free is freed after it, unless the code has switched that off.
        """
        with unrecorded():
            self.recorded_step(partial(_drop_result, run))

    def located_step(self, run: Callable[[], object], root: str) -> None:
        """Do as ``step``, and record the lines that take memory.

        Lines below the directory *root* are the project's.
        """
        self.live.site = partial(site_here, root)
        self.step(run)
        self.live.site = None

    def recorded_step(self, run: Callable[[], T]) -> T:
        """Run one step as any other, and return what it returns."""
        first = len(self.live.events)
        self.collector.begin_step()
        result = run()
        self.freed.append(self.collector.free(lambda: self.live.now_bytes))
        # After the collection, so that cycles of the step are freed within it and at
        # the same event in every run.
        self._steps.append((first, len(self.live.events)))
        self.graphs.append(graphs_alive())
        return result

    @property
    def may_leave_garbage(self) -> bool:
        """Whether every step but the first did, or nobody has looked."""
        return self.collector.is_off or bool(least_left(self.freed[1:]))

    def garbage_of_step(
        self, steps: Iterator[Callable[[], object]], root: str
    ) -> Garbage:
        """Run two of *steps*; tell what the collector frees after each, and nothing else.

        Lines below the directory *root* are the project's.
        """
        self.collector.collect()
        first = len(self.live.events)
        self.live.site = partial(site_here, root)
        freed: list[int | None] = []
        for run in islice(steps, 2):
            self.collector.begin_step()
            with unrecorded():
                run()
            last = len(self.live.events)
            before, was_run = self.live.now_bytes, self.collector.was_run
            cycle = described_cycle(self.collector, size_of_gpu_tensor)
            freed.append(None if was_run else before - self.live.now_bytes)
        self.live.site = None
        events = self.live.events
        died = {event.number for event in events[last:] if not event.is_birth}
        return Garbage(
            nbytes=least_left(freed),
            held=held_by_events(
                (e for e in events[first:last] if e.number in died and e.is_birth),
                FindingKind.GARBAGE,
            ),
            cycle=cycle,
        )

    def explained_step(self, run: Callable[[], object], root: str) -> Picture | None:
        """Run one more step, which is like the last, and look around at its peak.

        ``None`` if it is not alike: what is alive at another moment explains nothing.
        Lines below the directory *root* are the project's.
        """
        lookout = Lookout(self.live, root, self.memories()[-1])
        self.step(run)
        return lookout.picture(self.memories()[-1].peak)

    def left_by_step(
        self, steps: Iterator[Callable[[], object]], root: str
    ) -> tuple[Finding, ...]:
        """Run two of *steps* and return what the first took that is alive after both.

        It has the lines that keep it. Those below the directory *root* are the project's.
        """
        first = len(self.live.events)
        self.located_step(next(steps), root)
        last = len(self.live.events)
        self.step(next(steps))
        alive = alive_at(self.live.events, len(self.live.events) - 1)
        events, made_at = self.live.events[first:last], lines_made_at(self.live)
        taken = (
            e._replace(site=made_at.get(e.number, e.site))
            for e in events
            if e.number in alive and e.is_birth
        )
        return held_by_events(taken, FindingKind.LEFT)

    @property
    def graphs_from(self) -> str:
        """Which line made what the graph of earlier steps hangs on, if any does."""
        is_kept = graphs_left(self.graphs[1:])
        return line_of_graphs(self.live, self._steps) if is_kept else ""

    def memories(self) -> tuple[StepMemory, ...]:
        """What each step needs, by the simulated allocator."""
        return step_memories(self.live.events, self._steps)


def line_of_graphs(live: LiveMemory, steps: Sequence[tuple[int, int]]) -> str:
    """Say which lines made what earlier *steps* keep graphs by, or else the oldest one."""
    before = last_numbers(live.events, steps)[-2]

    def is_old(t: Any) -> bool:
        return is_gpu_tensor(t) and 0 < (live.number_of(t.inside) or 0) <= before

    kept = [t.inside for t in oldest_graphs(is_old) if is_gpu_tensor(t)]
    places = (live.made_at[t].location for t in kept if t in live.made_at)
    lines = Counter(f"line {p.line} of {Path(p.file).name}" for p in places if p)
    often = [line for line, count in lines.items() if 2 * count >= max(lines.values())]
    return f", from {' and '.join(often)}" if often else ""


def held_by_events(
    births: Iterable[MemoryEvent], kind: FindingKind, reason: str = ""
) -> tuple[Finding, ...]:
    """Add up *births* by line, in blocks as the allocator rounds them."""
    taken = ((rounded(e.nbytes), e.op, e.site) for e in births if e.site is not None)
    return held_by_place(taken, kind, reason)


def size_of_gpu_tensor(thing: Any) -> int:
    """Return the size of *thing*'s storage, if it is a GPU tensor."""
    return nbytes_of(thing.inside) if is_gpu_tensor(thing) else 0


@contextmanager
def unrecorded() -> Iterator[None]:
    """Switch all recorders off inside; a watch on the memory goes on."""
    recorders = list(WATCH.recorders)
    WATCH.recorders.clear()
    try:
        yield
    finally:
        WATCH.recorders[:] = recorders


def _drop_result(run: Callable[[], object]) -> None:
    run()


@contextmanager
def watching_memory(
    workspace_bytes: int = WORKSPACE_BYTES,
    *,
    from_now: bool = False,
    limited: bool = False,
) -> Iterator[MemoryAudit]:
    """Watch the memory of the simulated GPU.

    What is alive already counts, except with *from_now*. If the memory is *limited*, an
    allocation that does not fit raises ``torch.OutOfMemoryError``.
    """
    room = SIMULATED_MEMORY.room if limited else None
    live = LiveMemory(workspace_bytes=workspace_bytes, room=room)
    made = dict(settings_made)
    with unrecorded(), watched(LiveMemory(), None):
        ENGINE_ALONE.count()
    settings_made.clear()  # the program itself has not used the GPU
    settings_made.update(made)
    gc.collect()
    with (
        held_collector() as collector,
        watched(live, None if from_now else is_gpu_tensor),
    ):
        WATCH.unchecked_listeners.append(live.leave_unchecked)
        try:
            yield MemoryAudit(live, collector)
        finally:
            WATCH.unchecked_listeners.remove(live.leave_unchecked)


# The memory of a program that runs its own loop.

MOST_IDLE_TURNS: Final = 20
"""Turns of a loop, one after the other, that leave nothing to the collector. It runs by
itself after these: it looks at all objects each time, and there may be a million turns."""

LEAST_GROWING_STEPS: Final = 8
MOST_GROWING_STEPS: Final = 50
"""Steps until growth is believed, and those where steps are cheap: a list may be emptied
every so many."""

CHEAP_BYTES: Final = 2**34
"""All that cheap steps take together, whether or not they give it back."""

STEADY_WATCHED_STEPS: Final = 2
"""Step from which on all steps are alike: the first one makes the optimizer's state."""


class EnoughSteps(SystemExit):
    """Ends a program of which no more steps are needed."""


class WatchedProgram:
    """Follows the steps of a program, and what each leaves to the garbage collector.

    ``growth`` is what each leaves for good, if steps do alike. ``graphs`` are those alive
    after each.
    """

    def __init__(self, audit: MemoryAudit) -> None:
        self.live = audit.live
        self.mark: StepMark | None = None
        self._collector = audit.collector
        self._ranges: list[tuple[int, int]] = []
        self._collects: list[bool] = []
        self._freed: list[int] = []
        self._collected: set[int] = set()
        self._cycle = ""
        self.growth = NOTHING_LEFT
        self.graphs: list[tuple[int, int]] = []
        self._graphs_from = ""
        self._optimizers: WeakSet[Any] = WeakSet()

    def begin(self, mark: StepMark, number: int) -> bool:
        """End a step where *mark* begins another one, and return if it did."""
        if mark is StepMark.REPLAY:
            return False  # takes no memory: what it uses was taken by the capture
        if mark is not StepMark.OPTIMIZER and self._has_optimizer():
            # It will step: what comes before, such as micro-batches, is a part of that.
            return False
        if number == 1:
            self.forget()
        self.mark = mark
        self.end_step()
        return True

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return len(self._ranges)

    @property
    def is_uncollected(self) -> bool:
        """Whether the program has switched the collector off."""
        return self._collector.is_off

    def forget(self) -> None:
        """Make what was so far a part of the first step."""
        self._ranges.clear()
        self._collects.clear()
        self._freed.clear()
        self.graphs.clear()
        self._graphs_from = ""
        self.growth = NOTHING_LEFT

    def end_step(self) -> None:
        """End a step, and collect after it."""
        collects, freed = self._collected_after()
        self._collects.append(collects)
        self._freed.append(freed)
        first = self._ranges[-1][1] if self._ranges else 0
        self._ranges.append((first, len(self.live.events)))
        self.graphs.append(graphs_alive())
        # Of the first only: later steps keep the same.
        if self.steps <= LEAST_GROWING_STEPS and graphs_left(self.graphs[1:]):
            self._graphs_from = line_of_graphs(self.live, self._ranges)

    def graph_notes(self) -> Iterator[str]:
        """Say what every step keeps of autograd, and which line made it."""
        if kept := graphs_left(self.graphs[1:]):
            yield remark_on_graphs(kept, self._graphs_from)

    def _collected_after(self) -> tuple[bool, int]:
        """Collect as Python would at some time, unless that is switched off.

        Returns whether the step had done it, and the bytes that were freed now.
        """
        had_run, before = self._collector.was_run, self.live.now_bytes
        if not self._collector.is_off:
            self._collect()
        self._collector.begin_step()
        return had_run, before - self.live.now_bytes

    def _collect(self) -> None:
        first = len(self.live.events)
        if self._collected or self._collector.is_off:
            self._cycle = described_cycle(self._collector, size_of_gpu_tensor)
        else:
            self._collector.collect()
        self._collected.update(event.number for event in self.live.events[first:])

    def garbage(self) -> Garbage:
        """Return what each step leaves that only the collector frees, of two at least."""
        if self._collector.is_off:
            self._collect()
        # Neither the first step, which makes what is kept, nor the last, of which the
        # program may still use something.
        steps = [
            self.live.events[first:last]
            for (first, last), collects in zip(
                self._ranges, self._collects, strict=True
            )
            if not collects
        ][1:-1]
        left = [
            [e for e in events if e.is_birth and e.number in self._collected]
            for events in steps
        ]
        if len(left) < STEADY_WATCHED_STEPS:
            return NOTHING_LEFT
        return Garbage(
            nbytes=min(sum(rounded(e.nbytes) for e in births) for births in left),
            held=held_by_events(left[-1], FindingKind.GARBAGE),
            cycle=self._cycle,
        )

    def _has_optimizer(self) -> bool:
        """Whether the program has an optimizer, alive, that has yet to step."""
        if not self._optimizers:
            # Not isinstance: it would run ``__class__`` of proxies.
            kind = torch.optim.Optimizer
            found = (o for o in gc.get_objects() if issubclass(type(o), kind))
            self._optimizers.update(found)
        return bool(self._optimizers)


class ProgramMemory(WatchedProgram):
    """Follows the memory of a program and ends it after *most_steps* steps, or later.

    It goes on for as long as must be seen what grows.

    The last one is pictured at its peak, if it is like the one before. Lines below the
    directory *root* are the project's.
    """

    def __init__(self, audit: MemoryAudit, root: str, most_steps: int) -> None:
        super().__init__(audit)
        self._root = root
        self._most_steps = most_steps
        self._lookout: Lookout | None = None
        self._loop = LoopMemory(audit.live, root, self._end_turn)
        self._turns: dict[int, tuple[bool, int]] = {}
        self._idle_turns = 0
        self.was_ended = False
        self._keeps = False
        self.picture: Picture | None = None

    def begin(self, mark: StepMark, number: int) -> bool:
        """Raise ``EnoughSteps`` after the last step."""
        had_mark = self.mark is not None
        if not super().begin(mark, number):
            return False
        if not had_mark:
            self._loop.close()
        if self.steps >= self._most_steps and not self._may_grow():
            self.was_ended = True
            # We are called inside the user's loop: only an exception that no program
            # catches by accident can end that, and a SystemExit ends it without a
            # traceback.
            raise EnoughSteps(0)
        self.live.whereabouts[0] = self.steps + 1
        if self.steps >= STEADY_WATCHED_STEPS:
            self._lookout = Lookout(self.live, self._root, self.memories()[-1])
            self._lookout.ends = last_numbers(self.live.events, self._ranges)
        return True

    def _may_grow(self) -> bool:
        """Whether more steps would show if it grows, or that what grows so far stops."""
        is_cheap = self.live.device.allocator.allocated.come < CHEAP_BYTES
        most = MOST_GROWING_STEPS if is_cheap else LEAST_GROWING_STEPS
        return self.steps < most and (self.growth.nbytes > 0 or self._keeps)

    def _see_growth(self, ranges: Sequence[tuple[int, int]]) -> None:
        """See what the steps so far, of these *ranges* of events, have left."""
        ends = last_numbers(self.live.events, ranges)
        alive = alive_at(self.live.events, ranges[-1][1] - 1)
        levels = levels_at(self.live.events, ranges)
        self.growth = growth_of(alive, ends, levels, lines_made_at(self.live))
        self._keeps = may_keep_more(alive, ends, levels)

    def end(self) -> None:
        """End the last step of a loop, which nothing else ends."""
        if self.mark is None:
            self.mark = StepMark.LOOP if self.loop else None
            self._ranges = self._loop.ranges()
            self._collects = [False] * len(self._ranges)
            self._freed = [0] * len(self._ranges)
            ends = [last for _, last in self._ranges]
            for at, (had_run, freed) in self._turns.items():
                self._collects[bisect_left(ends, at)] |= had_run
                self._freed[bisect_left(ends, at)] += freed
            self.picture = self._loop.picture()
            # Without the last turn: the variables of its function may be gone.
            if len(self._ranges) > 1:
                self._see_growth(self._ranges[:-1])
        elif self.mark is StepMark.LOADER and self.steps < self._most_steps:
            self.end_step()

    def _end_turn(self) -> None:
        """Collect after a turn of some loop; whether it is a step is known at the end."""
        if self._idle_turns == MOST_IDLE_TURNS:
            return
        had_run, freed = self._collected_after()
        self._turns[len(self.live.events)] = (had_run, freed)
        self._idle_turns = 0 if freed else self._idle_turns + 1
        if self._idle_turns == MOST_IDLE_TURNS:
            self._collector.release()

    @property
    def loop(self) -> Location | None:
        """A line of the loop whose turns are the steps, if nothing else ends them."""
        return self._loop.place if self.mark in {None, StepMark.LOOP} else None

    def memories(self) -> Sequence[StepMemory]:
        """What each step needs; a program without any is one step."""
        return step_memories(self.live.events, self._ranges)

    def uncollected_bytes(self) -> int:
        """Return the peak of all steps if the collector had not run between them."""
        freed = accumulate(self._freed, initial=0)
        steps = zip(self.memories(), freed, strict=False)
        return max(step.allocated_bytes + before for step, before in steps)

    def forget(self) -> None:
        """Make what was so far a part of the first step."""
        super().forget()
        self._picture_step(None)

    def end_step(self) -> None:
        """End a step, and look at what was pictured of it."""
        super().end_step()
        self._picture_step(self.memories()[-1].peak)
        self._see_growth(self._ranges)

    def _picture_step(self, peak: int | None) -> None:
        if self._lookout is not None:
            self.picture = self._lookout.picture(peak) or self.picture
            self._lookout = None


class FirstSteps(WatchedProgram):
    """Watches as many steps of a program as show what each leaves to the collector.

    The memory is followed to the end: what the program asks of it must not change, and
    it shows ``growth``.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._watch, self._held = ExitStack(), ExitStack()
        live = LiveMemory(workspace_bytes=WORKSPACE_BYTES)
        self._watch.enter_context(watched(live, None))
        super().__init__(MemoryAudit(live, self._held.enter_context(held_collector())))
        # A worker of a loader is a fork, and nobody would let its collector run again.
        os.register_at_fork(after_in_child=self._collector.release)
        self._found: Garbage | None = None
        live.site = partial(site_here, root)

    def _begin_anew(self) -> None:
        self._found, self.live.events = None, []
        self.forget()
        self._collector = self._held.enter_context(held_collector())
        self.live.site = partial(site_here, self._root)

    def begin(self, mark: StepMark, number: int) -> bool:
        """Stop once enough steps have ended, until a better mark ends them."""
        if self._found is not None and number == 1 and mark is not self.mark:
            self._begin_anew()
        if self._found is not None:
            if mark is self.mark:
                self._follow_growth()
            return False
        is_step = super().begin(mark, number)
        if self.steps == MOST_FIRST_STEPS:
            self.garbage()
        return is_step

    def garbage(self) -> Garbage:
        """Return what was found, and let the collector run."""
        if self._found is None:
            self._found = super().garbage()
            self._judged_steps = 0
            self._ends = last_numbers(self.live.events, self._ranges)
            self._levels = levels_at(self.live.events, self._ranges)
            self.live.events = self._alive = AliveBirths(self.live.events)
            if not is_rising(self._levels):
                self.live.site = None
            self._held.close()
        return self._found

    def _follow_growth(self) -> None:
        """End a step, and look now and then at what steps have left."""
        self._ends.append(self.live.last_number)
        self._levels.append(self.live.now_bytes)
        if len(self._ends) < LOOKED_AT_AGAIN * self._judged_steps:
            return
        self._judged_steps = len(self._ends)
        if not self._collector.is_off:
            # Python's collector may not have seen all yet.
            self._collector.collect()
        made_at = lines_made_at(self.live)
        found = growth_of(self._alive.births, self._ends, self._levels, made_at)
        held = found.held or self.growth.held if found.nbytes else ()
        self.growth = replace(found, held=held)
        # Of a long program only the first steps have lines, until one is missing.
        grows = self.growth.nbytes > 0 or is_rising(self._levels)
        needs_line = grows and not self.growth.held
        self.live.site = partial(site_here, self._root) if needs_line else None

    def close(self) -> None:
        """Follow the memory no longer."""
        self._held.close()
        self._watch.close()


MOST_FIRST_STEPS: Final = 5

LOOKED_AT_AGAIN: Final = 1.25
"""Factor of the steps after which it is looked at again if memory grows."""


@contextmanager
def watching_program(root: str, most_steps: int) -> Iterator[ProgramMemory]:
    """Follow the memory of whatever runs inside, on the simulated GPU."""
    with unrecorded(), watching_memory(from_now=True) as audit:
        memory = ProgramMemory(audit, root, most_steps)
        steps = ProgramSteps(root, memory.begin)
        try:
            yield memory
        finally:
            steps.close()
