"""Finds the steps of a program that runs its own loop, by what torch does for it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from ..audit_record import StepMark
from ..memory_owners import current_node
from ..source_lines import SourceOwner, outwards, room_of
from .patches import Patch, patched
from .recorder import WATCH
from .streams import CUDAGraph


Begin = Callable[[StepMark, int], object]
"""Called as each step begins, with what marks it; what is before number 1 is a step."""


class ProgramSteps:
    """Calls *begin* where steps begin: after an optimizer's ``step()``, else a backward.

    A replay of a graph that captured them does them again, and then the warm-up before it
    was no step. Without either, a step begins after any replay, or at the next batch of a
    ``DataLoader``. Whatever begins the first step of a better mark comes with number 1
    again. Lines below the directory *root* are the project's.
    """

    def __init__(self, root: str, begin: Begin) -> None:
        self._begin = begin
        self._optimizers = OptimizerSteps()
        self._backwards = MostCounted()
        self._batches = MostCounted()
        self._root = root
        self._graphs = CapturedGraphs(root)
        self._undo = ExitStack()
        self._undo.enter_context(patched(self._graphs.noticed(self._replayed)))
        self._undo.callback(
            register_optimizer_step_post_hook(self._optimizer_stepped).remove
        )
        self._undo.enter_context(patched(_noticed_backwards(self._gone_back)))
        self._undo.enter_context(patched(_noticed_batches(self._batch_taken)))

    def close(self) -> None:
        """Count no more steps: the hook is one of the process, whoever counts."""
        self._undo.close()

    def counted(self) -> tuple[StepMark | None, int]:
        """Return what marks the steps, and their number; a single one shows no loop."""
        if self._graphs.steps_of(StepMark.OPTIMIZER):
            return StepMark.REPLAY, self._graphs.steps_of(StepMark.OPTIMIZER)
        if self._optimizers.steps:
            return StepMark.OPTIMIZER, self._optimizers.steps
        found = (
            (StepMark.BACKWARD, self._backwards.steps),
            (StepMark.REPLAY, self._graphs.steps_of(None)),
            (StepMark.LOADER, self._batches.steps),
        )
        return next((each for each in found if each[1] > 1), (None, 0))

    @property
    def are_found(self) -> bool:
        """Whether anything has marked a step so far."""
        marks = (self._optimizers, self._backwards, self._batches)
        return self._graphs.are_replayed or any(each.steps for each in marks)

    def _replayed(self, graph: object) -> None:
        does = self._graphs.marks.get(graph)
        if does is StepMark.BACKWARD and not self._graphs.steps_of(does):
            self._optimizers, self._backwards = OptimizerSteps(), MostCounted()
        is_new = self._graphs.count(graph)
        trains = self._optimizers.steps or self._backwards.steps
        if does is StepMark.BACKWARD:
            self._gone_back()
        elif is_new and (does is StepMark.OPTIMIZER or not trains):
            self._begin(StepMark.REPLAY, self._graphs.steps_of(does))

    def _optimizer_stepped(self, optimizer: Any, *_: object) -> None:
        self._graphs.capture(StepMark.OPTIMIZER)
        if self._graphs.steps_of(StepMark.OPTIMIZER):
            return
        before = self._optimizers.steps
        self._optimizers.count(optimizer)
        if self._optimizers.steps > before:
            self._begin(StepMark.OPTIMIZER, self._optimizers.steps)

    def _gone_back(self) -> None:
        self._graphs.capture(StepMark.BACKWARD)
        if self._optimizers.steps or self._graphs.steps_of(StepMark.OPTIMIZER):
            return
        before = self._backwards.steps
        self._backwards.count(_place(self._root))
        if self._backwards.steps > before:
            self._begin(StepMark.BACKWARD, self._backwards.steps)

    def _batch_taken(self, dataset: object) -> None:
        before = self._batches.steps
        self._batches.count(id(dataset))
        # The first batch begins the first step, and the second one ends it.
        trains = self._optimizers.steps or self._backwards.steps
        is_marked = trains or self._graphs.are_replayed
        if not is_marked and self._batches.steps > max(before, 1):
            self._begin(StepMark.LOADER, self._batches.steps - 1)


class OptimizerSteps:
    """Counts the steps of a program that may have several optimizers, or make new ones."""

    def __init__(self) -> None:
        self._alive: WeakSet[Any] = WeakSet()
        self._in_turn: WeakSet[Any] = WeakSet()
        self._total = 0
        self._turns = 0
        self._most_alive = 0

    def count(self, optimizer: Any) -> None:
        """Count one step of *optimizer*."""
        self._total += 1
        if not self._turns or optimizer in self._in_turn:
            self._turns += 1
            self._in_turn.clear()
        self._in_turn.add(optimizer)
        self._alive.add(optimizer)
        self._most_alive = max(self._most_alive, len(self._alive))

    @property
    def steps(self) -> int:
        """Steps of the program: two optimizers that step in turns make one together."""
        # An optimizer that is made anew in each step never steps again.
        return max(self._turns, self._total // max(1, self._most_alive))


Place = tuple[CodeType, int]
"""A place in a function, that tells the turns of a loop apart."""


def _place(root: str) -> Place | None:
    """Return the place in the project that runs now."""
    of_project = (
        (frame.f_code, frame.f_lasti)
        for frame in outwards(sys._getframe(1))  # noqa: SLF001, inspect.stack() reads sources
        if room_of(frame.f_code.co_filename, root) is SourceOwner.PROJECT
    )
    return next(of_project, None)


class CapturedGraphs:
    """Knows what CUDA graphs have captured, and counts their replays by the line.

    Graphs that one line replays in a row, with nothing between them, make one step.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._captured: Any = None
        self._counts: Counter[tuple[StepMark | None, Place | None]] = Counter()
        self._in_a_row: WeakSet[Any] = WeakSet()
        self._events = 0
        self.marks: WeakKeyDictionary[Any, StepMark] = WeakKeyDictionary()

    def capture(self, mark: StepMark) -> None:
        """Note that what is captured now, if anything is, has *mark* in it."""
        if self._captured is not None and (
            self.marks.get(self._captured) is not StepMark.OPTIMIZER
        ):
            self.marks[self._captured] = mark

    def count(self, graph: object) -> bool:
        """Count a replay of *graph*; return whether it begins a step."""
        events = sum(recorder.events for recorder in WATCH.recorders)
        if events != self._events or graph in self._in_a_row:
            self._in_a_row.clear()
        is_new = not self._in_a_row
        self._in_a_row.add(graph)
        self._events = events
        key = self.marks.get(graph), _place(self._root)
        before = self.steps_of(key[0])
        self._counts[key] += is_new
        return self.steps_of(key[0]) > before

    def steps_of(self, mark: StepMark | None) -> int:
        """Return the replays of graphs that have *mark* in them, of the line with most."""
        found = (count for (does, _), count in self._counts.items() if does is mark)
        return max(found, default=0)

    @property
    def are_replayed(self) -> bool:
        """Whether any was replayed so far."""
        return bool(self._counts)

    def noticed(self, replayed: Callable[[object], object]) -> Iterator[Patch]:
        """Follow captures, and call *replayed* with each graph that was replayed."""
        base: Any = CUDAGraph
        begin, end, replay = base.capture_begin, base.capture_end, base.replay

        def began(graph: Any, *arguments: Any, **options: Any) -> None:
            begin(graph, *arguments, **options)
            self._captured = graph

        def ended(graph: Any) -> None:
            end(graph)
            self._captured = None

        def noticed(graph: Any) -> None:
            replay(graph)
            replayed(graph)

        yield Patch(base, "capture_begin", began)
        yield Patch(base, "capture_end", ended)
        yield Patch(base, "replay", noticed)


class MostCounted:
    """Counts by what made a step: the one with most tells how many there were.

    Of backwards it is the line, as two lines of a loop make one step; of batches the
    dataset: its passes add up.
    """

    def __init__(self) -> None:
        self._counts: Counter[object] = Counter()

    def count(self, made_by: object) -> None:
        """Count one of what it was *made_by*."""
        self._counts[made_by] += 1

    @property
    def steps(self) -> int:
        """Steps so far."""
        return max(self._counts.values(), default=0)


def _noticed_backwards(notice: Callable[[], object]) -> Iterator[Patch]:
    """Call *notice* after each backward, but not after those inside of one."""
    base: Any = torch.autograd
    backward = base.backward

    @wraps(backward)
    def gone_back(*arguments: Any, **options: Any) -> None:
        __tracebackhide__ = True
        backward(*arguments, **options)
        # A checkpoint that is re-entrant goes back inside of a node.
        if current_node() is None:
            notice()

    yield Patch(base, "backward", gone_back)


def _noticed_batches(notice: Callable[[object], object]) -> Iterator[Patch]:
    """Call *notice* with the dataset of each batch that a ``DataLoader`` returns."""
    base: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001, there is no hook
    take = base.__next__

    def taken(iterator: Any) -> Any:
        __tracebackhide__ = True
        batch = take(iterator)
        notice(iterator._dataset)  # noqa: SLF001, the same for each pass over it
        return batch

    yield Patch(base, "__next__", taken)
