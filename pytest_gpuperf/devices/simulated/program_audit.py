"""The audit of a program with its own loop: which syncs repeat, and which happen once."""

from __future__ import annotations

import dis
import gc
import os
import re
import sys
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import torch

from ...model.finding import Finding, FindingKind, Location, Phase
from ..audit_record import StepAudit, StepMark
from ..own_code import OWN
from ..source_lines import SourceOwner, location_of, outwards, room_of, site_of_caller
from .gpu import SimulatedGpu
from .modules import REPLICAS
from .patches import Patch, patched
from .program_steps import ProgramSteps
from .tensor_values import BACKING


class ProgramAudit:
    """Separates what a program does in every step from what it does once at its start.

    A step ends with an optimizer's ``step()``, else with a backward, else with the next
    batch of a ``DataLoader``, else with a turn of a loop that does something on the GPU.
    A program of a single step does not show the difference. ``live`` is its memory.
    """

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._recorder = gpu.recorder
        self._turns = LoopTurns(gpu.recorder.root)
        # Imported late: what watches memory finds the turns of a loop by this module.
        from .memory_watch import FirstSteps

        self._first = FirstSteps(gpu.recorder.root)
        self.live = self._first.live
        self._steps = ProgramSteps(gpu.recorder.root, self._begun)
        self._collections = Collections(gpu.recorder.root)
        self._starts: list[int] = []
        self._recorder.starts = self._starts
        self._recorder.listener = self._happened

    def close(self) -> None:
        """Count no more steps."""
        self._recorder.listener = None
        self._collections.close()
        self._steps.close()
        self._first.close()

    def notes(self) -> tuple[str, ...]:
        """Say what else makes the steps slow, and if values were given up."""
        also = self._collections.notes(self._counted()[1])
        graphs = self._first.graph_notes()
        return tuple(filter(None, (BACKING.switched, *also, *graphs)))

    def audit(self) -> StepAudit:
        """Return all findings; those of no step but before or after all are ``once``."""
        mark, steps = self._counted()
        is_loop = mark is StepMark.LOOP
        self._recorder.starts = self._turns.step.starts if is_loop else self._starts
        # The last turn of a loop, or batch of a loader, is a step that has begun.
        is_over = not is_loop and 1 < steps == len(self._starts)
        self._recorder.last = steps if is_over else None
        audit = without_buckets(self._gpu.so_far())
        syncs = self._syncs_of_steps(audit, steps)
        self._gpu.begin_step()
        findings = tuple(
            replace(
                f, once=f.once and steps > 1, in_steps=min(f.in_steps, max(steps, 1))
            )
            for f in audit.findings
        )
        return replace(
            audit,
            findings=findings,
            steps=steps,
            mark=mark,
            syncs=syncs,
            loop=self._turns.step.location if is_loop else None,
            garbage=self._first.garbage(),
            growth=self._first.growth,
        )

    def _syncs_of_steps(self, audit: StepAudit, steps: int) -> tuple[int, ...]:
        """Return the syncs of each of *steps*, without those that happened once."""
        repeated = [f for f in audit.findings if f.is_certain and not f.once]
        counts = self._recorder.syncs_of_steps(repeated)
        # What comes after the last optimizer's step() belongs to the first one's half.
        first = counts.total() - sum(counts[step] for step in range(1, steps))
        return (first, *(counts[step] for step in range(1, steps)))

    def _counted(self) -> tuple[StepMark | None, int]:
        """Return what marks the steps, and their number."""
        mark, steps = self._steps.counted()
        if mark is None and self._turns.step.turns > 1:
            return StepMark.LOOP, self._turns.step.turns
        return mark, steps

    def _begun(self, mark: StepMark, number: int) -> None:
        if mark is not StepMark.LOOP:
            self._recorder.begin_part(anew=number == 1)
            if number == 1:  # of a better mark
                self._starts.clear()
            self._starts.append(self._recorder.part)
        self._first.begin(mark, number)
        self.live.whereabouts[0] = number + 1

    def _happened(self, op: str, syncs: bool) -> None:  # noqa: FBT001, once for each operation
        # What another mark ends needs no loop, and looking costs time.
        if self._steps.are_found:
            self._recorder.listener = None
            return
        turn = self._turns.look(self._recorder.part + 1, op=op, matters=syncs)
        # Which loop is the step is known at the end.
        self._recorder.part += syncs
        if turn:
            self._begun(StepMark.LOOP, turn)


class Collections:
    """Counts the calls of ``gc.collect`` by their line.

    The GPU has nothing to do meanwhile, which is no sync that anything else would count.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._calls: Counter[Location | None] = Counter()
        self._undo = ExitStack()
        self._undo.enter_context(patched([Patch(gc, "collect", self._counting())]))

    def close(self) -> None:
        """Count no more calls."""
        self._undo.close()

    def notes(self, steps: int) -> Iterator[str]:
        """Yield the lines that collect in most steps."""
        for location, count in self._calls.items():
            if location is not None and count > 1 and 2 * count > steps:
                file = location.file.removeprefix(f"{Path.cwd()}{os.sep}")
                yield (
                    f"{file}:{location.line} calls gc.collect() {count} times: each looks "
                    "at every object of Python, and the GPU has nothing to do meanwhile; "
                    "collect every N steps, and break the cycles that need it"
                )

    def _counting(self) -> Callable[..., int]:
        collect = gc.collect

        @wraps(collect)
        def counted(*arguments: Any, **options: Any) -> int:
            caller = sys._getframe(1)  # noqa: SLF001, inspect.stack() reads sources
            if not caller.f_code.co_filename.startswith(OWN):
                site = site_of_caller(self._root, phase=Phase.FORWARD, caller=caller)
                self._calls[site.location] += 1
            return collect(*arguments, **options)

        return counted


BUCKETS: Final = "only NCCL moves its buckets on the GPU; gloo copies them here"


def without_buckets(audit: StepAudit) -> StepAudit:
    """Leave unchecked the copies of ``DistributedDataParallel`` between gradients and buckets.

    They are those of its reducer, which runs in C++ in the backward.
    """
    buckets = [f for f in audit.findings if _is_of_bucket(f)]
    if not (REPLICAS.made and buckets):
        return audit
    unchecked = [
        replace(
            found,
            kind=FindingKind.INCONCLUSIVE,
            op="DistributedDataParallel",
            reason=BUCKETS,
            metrics=(),
            torch=None,
        )
        for found in buckets
    ]
    syncs = sum(f.per_step for f in buckets if f.is_certain)
    inconclusive = sum(f.per_step for f in buckets) - syncs
    totals = replace(
        audit.totals,
        syncs=audit.totals.syncs - syncs,
        inconclusive=audit.totals.inconclusive - inconclusive,
    )
    return replace(
        audit,
        findings=tuple(f for f in audit.findings if f not in buckets),
        totals=totals,
        not_checked=(*audit.not_checked, *unchecked),
    )


def _is_of_bucket(found: Finding) -> bool:
    """Whether it is a copy in the backward, or where buckets are made anew."""
    in_replicas = found.torch is not None and found.torch.file.endswith(
        str(Path("nn", "parallel", "distributed.py"))
    )
    in_backward = found.phase is Phase.BACKWARD
    return found.op == "aten::copy_" and (in_backward or in_replicas)


# Loops, of which Python keeps no record: places of a frame that are passed again.


JUMPS: Final = frozenset({*dis.hasjrel, *dis.hasjabs})

ENDS: Final = re.compile("JUMP_(FORWARD|ABSOLUTE|BACKWARD)|RETURN|RAISE|RERAISE")
"""Instructions after which the next one does not come."""


class CodeLoops:
    """The loops of a function, and which of its places follow others in the same turn."""

    def __init__(self, code: CodeType) -> None:
        self._jumps: list[tuple[int, int, bool]] = []
        self._ends: dict[int, int] = {}
        for each in dis.get_instructions(code):
            at, to = each.offset, each.argval if each.opcode in JUMPS else -1
            self._jumps.append((at, to, bool(ENDS.match(each.opname))))
            if each.opname == "FOR_ITER":
                self._ends[at] = to
            # What waits for a generator jumps back, too.
            elif 0 <= to < at and "NO_INTERRUPT" not in each.opname:
                self._ends[to] = max(at + 1, self._ends.get(to, 0))
        self._following: dict[int, set[int]] = {}

    def around(self, at: int) -> list[int]:
        """Return where the loops around the place *at* begin, the outermost first."""
        return sorted(begin for begin, end in self._ends.items() if begin <= at < end)

    def follows(self, at: int, before: int) -> bool:
        """Whether the place *at* can come after the one *before* in the same turn."""
        if before not in self._following:
            self._following[before] = set(self._forward(before))
        return self._index(at) in self._following[before]

    def _forward(self, before: int) -> Iterator[int]:
        reached, falls, first = set[int](), True, self._index(before)
        for index, (at, to, ends) in enumerate(self._jumps[first:], first):
            if falls or at in reached:
                yield index
                reached.add(to)
                falls = not ends

    def _index(self, at: int) -> int:
        # A call is at its end while it runs: behind its instruction, in its cache.
        return bisect_right(self._jumps, at, key=itemgetter(0)) - 1


NO_LOOPS: Final = CodeLoops((lambda: None).__code__)

loops_of: Final = cache(CodeLoops)

PRINTING: Final = frozenset({"__format__", "__repr__", "__str__"})


class Visits:
    """How often each loop of one frame turned.

    It is kept in ``f_trace`` of the frame, which is unused while nobody traces, and ends
    with it: a reference to the frame itself would keep the program's tensors alive.
    """

    __slots__ = ("_passed", "code")

    def __init__(self) -> None:
        self._passed: dict[int, tuple[int, int, object, str]] = {}
        self.code = NO_LOOPS

    def __call__(self, *_: object) -> None:
        """Trace nothing, if a debugger starts later."""

    def loop_at(
        self, frame: FrameType, inner: FrameType, *, matters: bool
    ) -> int | None:
        """Return where the innermost loop begins; what passes a place again is one, too.

        Values that one call prints are no turns of it.
        """
        if self.code is NO_LOOPS:
            self.code = loops_of(frame.f_code)
        around = self.code.around(frame.f_lasti)
        matters = matters and inner.f_code.co_name not in PRINTING
        return around[-1] if around else frame.f_lasti if matters else None

    def passed(self, loop: int, at: int, inner: FrameType, op: str) -> int:
        """Return which turn of *loop* begins at the place *at*, or 0 if none does.

        Events of one call have the same frame *inner*, which the place calls. A function
        that is called again is a turn, but an *op* may be several of torch.
        """
        child = _visits(inner)
        op = op if inner.f_code.co_filename.startswith(OWN) else ""
        turn, last, before, first = self._passed.get(loop, (0, at, None, op))
        is_again = at == last and child is not before and op == first
        if is_again or not (turn and self.code.follows(at, last)):
            self._passed[loop] = (turn + 1, at, child, op)
            return turn + 1
        self._passed[loop] = (turn, at, child, first if at == last else op)
        return 0


@dataclass(slots=True)
class Loop:
    """A loop: its turns, and the events in it that are in no loop inside.

    ``starts`` says what was given to ``look`` at the first event of each turn after the
    first.
    """

    location: Location | None = None
    depth: int = 0
    level: int = 0
    turns: int = 0
    events: int = 0
    syncs: int = 0
    starts: list[int] = field(default_factory=list)


NO_LOOP: Final = Loop()

LEAST_SHARE_OF_EVENTS: Final = {True: 0.2, False: 0.4}
"""Of all events: a loop with fewer, such as that of epochs, is not the step. One that
waits for nothing may be a set-up's or a warm-up's."""

MODULE_CALL: Final = torch.nn.Module._call_impl.__code__  # noqa: SLF001, what a loop calls


class LoopTurns:
    """Finds the loops of the project, counts their turns, and says which one is the step.

    What a module does in its forward is no step of the program, unless nothing else
    waits.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._thread = threading.get_ident()
        self._depth = sys.maxsize
        self._turns = 0
        self._events = 0
        self._loops: dict[tuple[CodeLoops, int], Loop] = {}

    def look(self, at: int = 0, *, op: str = "", matters: bool = True) -> int:
        """Look at the stack of an event; return which turn begins there, or 0 if none does.

        A loop further out than the one before begins to count at 1. The event is number
        *at* for whoever looks. One that *matters* makes a loop a step wherever it is.
        """
        if sys.gettrace() is not None or threading.get_ident() != self._thread:
            return 0
        self._events += 1
        before, depth_before = self._turns, self._depth
        stack = list(outwards(sys._getframe(1)))[::-1]  # noqa: SLF001, inspect.stack() reads sources
        innermost: Loop | None = None
        for depth, (frame, inner) in enumerate(pairwise(stack)):
            turns = innermost is not None and innermost.turns
            if frame.f_code is MODULE_CALL and (turns or not matters):
                break
            if room_of(frame.f_code.co_filename, self._root) is not SourceOwner.PROJECT:
                continue
            visits = _visits(frame)
            begin = visits.loop_at(frame, inner, matters=matters)
            if begin is None:
                continue
            key = (visits.code, begin)
            loop = self._loops.get(key) or self._loops.setdefault(
                key, Loop(location_of(frame), depth, len(visits.code.around(begin)))
            )
            if visits.passed(begin, frame.f_lasti, inner, op) > (not loop.turns):
                self._turned(loop, at)
            if innermost is None or loop.turns:
                innermost = loop
        if innermost is not None:
            innermost.events += 1
            innermost.syncs += matters
        if self._depth < depth_before:
            self._turns = 1
        return self._turns if self._turns != before else 0

    def _turned(self, loop: Loop, at: int) -> None:
        # The first turn was no sign of a loop.
        loop.turns += 1 + (not loop.turns)
        loop.starts.append(at)
        if loop.depth < self._depth:
            self._depth, self._turns = loop.depth, 0
        if loop.depth == self._depth:
            self._turns = max(self._turns, loop.turns - 1)

    @property
    def step(self) -> Loop:
        """The outermost loop with a fair share of the events, else what waits most."""
        loops = [loop for loop in self._loops.values() if loop.turns]
        fair = [
            loop
            for loop in loops
            if loop.events >= LEAST_SHARE_OF_EVENTS[loop.syncs > 0] * self._events
        ]
        if fair:
            return min(fair, key=lambda loop: (loop.depth, loop.level, -loop.events))
        waiting = [loop for loop in loops if loop.syncs]
        return max(waiting, key=lambda loop: loop.syncs, default=NO_LOOP)


def _visits(frame: FrameType) -> Visits:
    if not isinstance(frame.f_trace, Visits):
        frame.f_trace = Visits()
    return frame.f_trace
