"""The audit of a program with its own loop: which waits repeat, and which happen once."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import CodeType
from types import FrameType
from typing import Any
from typing import Final

from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import Location
from ...model.finding import Phase
from ..audit_record import StepAudit
from ..audit_record import StepMark
from ..own_code import OWN
from ..source_lines import SourceOwner
from ..source_lines import location_of
from ..source_lines import outwards
from ..source_lines import room_of
from ..source_lines import site_of_caller
from .gpu import PretendGpu
from .modules import REPLICAS
from .patches import Patch
from .patches import patched
from .program_steps import ProgramSteps
from .tensor_values import BACKING


class ProgramAudit:
    """Separates what a program does in every step from what it does once at its start.

    A step ends with an optimizer's ``step()``, else with a backward, else with the next
    batch of a ``DataLoader``, else with a turn of a loop that does something on the GPU.
    A program of a single step does not show the difference. ``live`` is its memory.
    """

    def __init__(self, gpu: PretendGpu) -> None:
        self._gpu = gpu
        self._recorder = gpu.recorder
        self._turns = LoopTurns(gpu.recorder.root)
        # Imported late: what watches memory finds the turns of a loop by this module.
        from .memory_watch import FirstSteps

        self._first = FirstSteps(gpu.recorder.root)
        self.live = self._first.live
        self._steps = ProgramSteps(gpu.recorder.root, self._begun)
        self._collections = Collections(gpu.recorder.root)
        self._recorder.of_program = True
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
        return tuple(filter(None, (BACKING.switched, *also)))

    def audit(self) -> StepAudit:
        """Return all findings; those not seen again after the first step are ``once``."""
        audit = without_buckets(self._gpu.end_step())
        mark, steps = self._counted()
        findings = tuple(replace(f, once=f.once and steps > 1) for f in audit.findings)
        loop = self._turns.place if mark is StepMark.LOOP else None
        return replace(
            audit,
            findings=findings,
            steps=steps,
            mark=mark,
            loop=loop,
            garbage=self._first.garbage(),
        )

    def _counted(self) -> tuple[StepMark | None, int]:
        """Return what marks the steps, and their number."""
        mark, steps = self._steps.counted()
        if mark is None and self._turns.steps > 1:
            return StepMark.LOOP, self._turns.steps
        return mark, steps

    def _begun(self, mark: StepMark, number: int) -> None:
        self._recorder.begin_step(number)
        self._first.begin(mark, number)
        self.live.whereabouts[0] = number + 1

    def _happened(self) -> None:
        # What another mark ends needs no loop, and looking costs time.
        if not self._steps.are_found:
            turn = self._turns.look()
            if turn:
                self._begun(StepMark.LOOP, turn)


class Collections:
    """Counts the calls of ``gc.collect`` by their line.

    The GPU has nothing to do meanwhile, which is no wait that anything else would count.
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
    """Leave unjudged the copies of ``DistributedDataParallel`` between gradients and buckets.

    They are those of its reducer, which runs in C++ in the backward.
    """
    buckets = [f for f in audit.findings if _is_of_bucket(f)]
    if not (REPLICAS.made and buckets):
        return audit
    unjudged = [
        replace(
            found,
            kind=FindingKind.MAYBE,
            op="DistributedDataParallel",
            reason=BUCKETS,
            metrics=(),
            torch=None,
        )
        for found in buckets
    ]
    waits = sum(f.per_step for f in buckets if f.is_certain)
    maybe = sum(f.per_step for f in buckets) - waits
    totals = replace(
        audit.totals,
        syncs=audit.totals.syncs - waits,
        maybe=audit.totals.maybe - maybe,
    )
    return replace(
        audit,
        findings=tuple(f for f in audit.findings if f not in buckets),
        totals=totals,
        not_judged=(*audit.not_judged, *unjudged),
    )


def _is_of_bucket(found: Finding) -> bool:
    """Whether it is a copy in the backward, or where buckets are made anew."""
    in_replicas = found.torch is not None and found.torch.file.endswith(
        str(Path("nn", "parallel", "distributed.py"))
    )
    in_backward = found.phase is Phase.BACKWARD
    return found.op == "aten::copy_" and (in_backward or in_replicas)


# Loops, of which Python keeps no record: a place of a frame that is passed again.


class Visits:
    """How often each place of one frame led to an event.

    It is kept in ``f_trace`` of the frame, which is unused while nobody traces, and ends
    with it: a reference to the frame itself would keep the program's tensors alive.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, object]] = {}

    def __call__(self, *_: object) -> None:
        """Trace nothing, if a debugger starts later."""

    def passed(self, place: int, child: object) -> tuple[int, bool]:
        """Return how often *place* was passed, and if that is new.

        Events of one pass have the same *child*, the frame that the place calls.
        """
        count, before = self._places.get(place, (0, None))
        is_new = child is not before
        if is_new:
            self._places[place] = (count + 1, child)
        return count + is_new, is_new


@dataclass(slots=True)
class LoopPlace:
    """A place in a loop: the turns that passed it, and the events that it led to.

    ``starts`` says what was given to ``look`` at the first event of each turn after the
    first.
    """

    location: Location
    turns: int = 0
    events: int = 0
    starts: list[int] = field(default_factory=list)


LEAST_SHARE_OF_EVENTS: Final = 0.2
"""Of the events: an outer loop with fewer, such as that of epochs, is not the step."""


class LoopTurns:
    """Finds the outermost function of the project with a loop, and counts its turns."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._thread = threading.get_ident()
        self._depth = sys.maxsize
        self._turns = 0
        self._places: dict[tuple[CodeType, int], LoopPlace] = {}

    @property
    def steps(self) -> int:
        """Turns of the loop so far; 0 if none was found."""
        place = self._step()
        return place.turns if place else 0

    @property
    def place(self) -> Location | None:
        """A line of the loop."""
        place = self._step()
        return place.location if place else None

    @property
    def starts(self) -> Sequence[int]:
        """Where each turn after the first begins, in the numbers given to ``look``."""
        place = self._step()
        return place.starts if place else ()

    def look(self, at: int = 0) -> int:
        """Look at the stack of an event; return which turn ends there, or 0 if none does.

        A loop further out than the one before begins to count at 1. The event is number
        *at* for whoever looks.
        """
        if sys.gettrace() is not None or threading.get_ident() != self._thread:
            return 0
        stack = list(outwards(sys._getframe(1)))[::-1]  # noqa: SLF001, inspect.stack() reads sources
        before, depth_before = self._turns, self._depth
        for depth, (frame, inner) in enumerate(pairwise(stack)):
            if room_of(frame.f_code.co_filename, self._root) is SourceOwner.PROJECT:
                self._pass(depth, frame, inner, at)
        if self._depth < depth_before:
            self._turns = 1
        return self._turns if self._turns != before else 0

    def _pass(self, depth: int, frame: FrameType, inner: FrameType, at: int) -> None:
        passed, is_new = _visits(frame).passed(frame.f_lasti, _visits(inner))
        if passed == 1 or depth > self._depth:
            return
        if depth < self._depth:
            self._depth = depth
            self._places.clear()
        key = (frame.f_code, frame.f_lasti)
        place = self._places.setdefault(key, LoopPlace(location_of(frame)))
        # The first turn was no sign of a loop.
        place.turns += is_new + (is_new and passed == SECOND_TURN)
        place.events += 1
        if is_new:
            place.starts.append(at)
        self._turns = max(self._turns, place.turns - 1)

    def _step(self) -> LoopPlace | None:
        """Return the place of the outermost loop with a fair share of the events."""
        events: Counter[int] = Counter()
        for place in self._places.values():
            events[place.turns] += place.events
        least = min(
            LEAST_SHARE_OF_EVENTS * events.total(), max(events.values(), default=0)
        )
        turns = min((t for t, count in events.items() if count >= least), default=0)
        return next((p for p in self._places.values() if p.turns == turns), None)


SECOND_TURN: Final = 2


def _visits(frame: FrameType) -> Visits:
    if not isinstance(frame.f_trace, Visits):
        frame.f_trace = Visits()
    return frame.f_trace
