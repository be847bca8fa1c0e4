"""Collects what happens on the simulated device while a step runs."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import torch

from ...model.finding import MOST_WAITS, Finding, FindingKind, Location, Phase
from ...model.metrics import AUDITED, LAUNCHES, METRICS, SYNCS, Metric, Unit
from ..audit_record import CopyDirection, StepAudit, Totals, copy_fields
from ..memory_owners import current_node, number_of
from ..operations import WRITES_TO_VIEW, OperationLog
from ..source_lines import Site, line_of_torch, lines_of_step, site_of_caller, where_of


MOST_FORWARD_SITES: Final = 10_000

WAITED_COPIES: Final = frozenset({"aten::_to_copy", "aten::copy_"})
"""Operations that a wait in them is for, and which are counted before it."""


RANDOM_OPS: Final = re.compile(
    r"aten::_?(native_|fused_)?(rand|normal|log_normal|uniform|bernoulli|dropout|multinomial"
    r"|exponential|geometric|cauchy|poisson|binomial)"
)


class AuditRecorder:
    """What happened since the last ``clear``, by kind, reason and site.

    Of a program that runs its own loop ``starts`` says at which parts its steps begin,
    ``last`` which of them was over before what follows, and the *listener* hears of each
    operation, and whether it waits.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.starts: Sequence[int] | None = None
        self.last: int | None = None
        self.of_suite = False
        self.phase: Phase | None = None
        self.listener: Callable[[str, bool], object] | None = None
        self._lock = threading.Lock()
        self._forward: OrderedDict[int, tuple[threading.Thread, Location | None]] = (
            OrderedDict()
        )
        self.clear()

    def clear(self) -> None:
        """Forget what was recorded."""
        self.counts = dict.fromkeys((metric.name for metric in AUDITED), 0)
        self.events = 0
        self.part = 0
        # Of each sync by parts.
        self._syncs: dict[_Sync, Counter[int]] = defaultdict(Counter)
        self._copies: Counter[_Copy] = Counter()
        self._bytes: Counter[_Copy] = Counter()
        # By findings without a number.
        self._not_checked: Counter[Finding] = Counter()
        self._as_eager: Counter[Finding] = Counter()
        self._work: Counter[tuple[Location, bool]] = Counter()
        # Where parts begin, in operations: those of a program are steps. A test has none.
        self._begun = {} if self.of_suite else {0: 0}
        # Of each sync the waits of one part: operations before it, and whether any ran.
        self._waits: dict[_Sync, tuple[int, list[tuple[int, bool]]]] = {}
        self._drained = -2
        self.locates_work = False
        self.log = OperationLog(self.root)

    def _heard(self, op: str, *, waits: bool = False) -> None:
        self.events += 1
        if self.listener is not None:
            self.listener(op, waits)

    def launch(self, op: str) -> None:
        """Count one operation, and its lines if ``locates_work``, which costs time."""
        self._heard(op)
        self.counts[LAUNCHES.name] += 1
        if self.locates_work:
            for depth, line in enumerate(lines_of_step(self.root)):
                self._work[line, depth > 0] += 1

    def count_draws(self) -> Counter[str]:
        """Count from now on the operations that draw random numbers on the GPU.

        They are those of the host here, but others on a GPU.
        """
        draws: Counter[str] = Counter()
        launch = self.launch

        def counting(op: str) -> None:
            draws[op] += bool(RANDOM_OPS.match(op))
            launch(op)

        self.launch = counting  # type: ignore[method-assign]
        return draws

    def begin_part(self, *, anew: bool) -> None:
        """Begin the next part of a program, which is a step; *anew*, those before were none."""
        if anew:
            self._begun, self._waits = {}, {}
        self.part += 1
        self._begun[self.part] = self.counts[LAUNCHES.name]

    def synced(
        self,
        kind: FindingKind,
        op: str,
        reason: str,
        count: int,
        caller: FrameType | None = None,
    ) -> None:
        """Record *count* syncs of the code that runs now, below *caller* if that is known."""
        self._heard(op, waits=True)
        # Tests name no line of torch: what they store would change with its version.
        is_copy = self.of_suite and op != "aten::_local_scalar_dense"
        is_located = self.starts is not None or is_copy
        inside = line_of_torch() if is_located else None
        sync = (kind, op, reason, self._site(caller), inside)
        self._add(self._syncs[sync], self.part, count)
        self._waited(sync)

    def _waited(self, sync: _Sync) -> None:
        """Keep where in its step *sync* waits, of the first step that has it."""
        enqueued = self.counts[LAUNCHES.name]
        is_busy = enqueued > self._drained + (sync[1] in WAITED_COPIES)
        if sync[0] is not FindingKind.INCONCLUSIVE:
            self._drained = enqueued
        if self.part in self._begun:
            part, waits = self._waits.setdefault(sync, (self.part, []))
            if part == self.part and len(waits) < MOST_WAITS:
                waits.append((enqueued - self._begun[part], is_busy))

    def copy(
        self,
        op: str,
        direction: CopyDirection,
        *,
        pinned: bool,
        nbytes: int,
    ) -> None:
        """Record a copy of *nbytes* by the code that runs now."""
        self._heard(op)
        inside = line_of_torch() if self.of_suite else None
        copy = (op, direction, pinned, self._site(), inside)
        self._add(self._copies, copy, 1)
        self._add(self._bytes, copy, nbytes)

    def leave_unchecked(self, op: str, reason: str) -> None:
        """Record that *op* ran and that nothing can be said about it."""
        self._add(self._not_checked, self._unchecked(op, reason), 1)

    def take_as_eager(self, op: str, reason: str) -> None:
        """Record that *op* was asked to compile and judged as eager code."""
        self._add(self._as_eager, self._unchecked(op, reason), 1)

    def _unchecked(self, op: str, reason: str) -> Finding:
        return _sync_of((FindingKind.INCONCLUSIVE, op, reason, self._site(), None))

    def remember_forward(self) -> None:
        """Keep the line of an operation with a backward that may wait.

        Its node in autograd's graph has been numbered just before it was dispatched.
        """
        # The number by which torch's own profiler links forward and backward.
        number = torch._C._autograd._get_sequence_nr() - 1  # noqa: SLF001
        thread = threading.current_thread()
        # Each thread counts for itself. What gets no node, such as ``nonzero``, meets
        # the number of the node before it.
        if self._forward.get(number, (None,))[0] is thread:
            return
        site = site_of_caller(self.root, phase=Phase.FORWARD)
        self._forward[number] = thread, site.location or site.innermost
        # Numbers of forwards that never get a backward would pile up.
        while len(self._forward) > MOST_FORWARD_SITES:
            self._forward.popitem(last=False)

    def audit(self) -> StepAudit:
        """Everything recorded, in the order of first occurrence."""
        # Of copies: a program that a signal ends has threads that go on recording.
        findings = tuple(self._found(*each) for each in self._syncs.copy().items())
        copies = tuple(
            replace(_copy_of(copy), per_step=count, moved_bytes=self._bytes[copy])
            for copy, count in self._copies.copy().items()
        )
        return StepAudit(
            findings=findings,
            copies=copies,
            totals=_totals(findings, copies, self.counts),
            not_checked=_counted(self._not_checked),
            as_eager=_counted(self._as_eager),
            work=tuple((*where, count) for where, count in self._work.copy().items()),
            operations=tuple(self.log.lines()),
        )

    def _found(self, sync: _Sync, parts: Counter[int]) -> Finding:
        where = self._place(*self._waits[sync]) if sync in self._waits else {}
        found = replace(_sync_of(sync), per_step=parts.total(), **where)
        if self.starts is None:
            return found
        steps = {bisect_right(self.starts, part) for part in parts}
        after_last = steps == {self.last}
        once = after_last or steps == {0}
        return replace(found, in_steps=len(steps), once=once, after_last=after_last)

    def _place(self, part: int, waits: Sequence[tuple[int, bool]]) -> dict[str, Any]:
        """Return the fields that say where in a step a sync waits, if that step is over."""
        end = self._begun.get(part + 1, self.counts[LAUNCHES.name])
        if self.starts and part + 1 not in self._begun:
            return {}
        after, busy = zip(*waits, strict=True)
        return {
            "waits_after": after,
            "operations": end - self._begun[part],
            "is_idle": not any(busy),
        }

    def syncs_of_steps(self, findings: Iterable[Finding]) -> Counter[int]:
        """Return how many syncs of *findings* each step of a program has."""
        chosen = {replace(f, per_step=0, in_steps=0) for f in findings}
        steps: Counter[int] = Counter()
        for sync, parts in self._syncs.copy().items():
            if _sync_of(sync) in chosen:
                for part, count in parts.items():
                    steps[bisect_right(self.starts or (), part)] += count
        return steps

    def _add(self, counter: Counter[Any], key: object, count: int) -> None:
        # Threads share the recorder, and ``+=`` on a Counter is not atomic.
        with self._lock:
            counter[key] += count

    def _site(self, caller: FrameType | None = None) -> Site:
        node = current_node()
        if node is None:
            return site_of_caller(self.root, phase=self.phase, caller=caller)
        # A write to a view has a node around that of the write, numbered next.
        number = number_of(node) - (node.name() == WRITES_TO_VIEW)
        _, forward = self._forward.get(number, (None, None))
        return site_of_caller(self.root, phase=Phase.BACKWARD, forward=forward)


# Counted as tuples: to make and to hash a finding takes longer than all else of a read.

_Sync = tuple[FindingKind, str, str, Site, Location | None]
_Copy = tuple[str, CopyDirection, bool, Site, Location | None]


def _sync_of(sync: _Sync) -> Finding:
    kind, op, reason, site, inside = sync
    metrics = () if kind is FindingKind.INCONCLUSIVE else (SYNCS.name,)
    where = where_of(site)
    return Finding(
        kind=kind, op=op, reason=reason, metrics=metrics, torch=inside, **where
    )


def _copy_of(copy: _Copy) -> Finding:
    op, direction, pinned, site, inside = copy
    what = copy_fields(direction, pinned=pinned)
    return Finding(op=op, torch=inside, **what, **where_of(site))


def _counted(counter: Counter[Finding]) -> tuple[Finding, ...]:
    return tuple(
        replace(found, per_step=count) for found, count in counter.copy().items()
    )


def _totals(
    findings: Collection[Finding],
    copies: Collection[Finding],
    counts: Mapping[str, int],
) -> Totals:
    certain = [f for f in findings if f.is_certain]
    syncs = sum(f.per_step for f in certain)
    copying = {copy.op for copy in copies}
    copied: Counter[str] = Counter()
    for copy in copies:
        for metric in copy.metrics:
            in_bytes = METRICS[metric].unit is Unit.BYTES
            copied[metric] += copy.moved_bytes if in_bytes else copy.per_step
    return Totals(
        syncs=syncs,
        inconclusive=sum(f.per_step for f in findings) - syncs,
        blocking_copies=sum(f.per_step for f in certain if f.op in copying),
        counts={**counts, **copied},
    )


def _by_all(name: str) -> Callable[..., None]:
    """Make a method that passes a call of *name* on to every recorder."""

    def passed(self: ActiveRecorders, *args: Any, **options: Any) -> None:
        for recorder in self.recorders:
            getattr(recorder, name)(*args, **options)

    return passed


class ActiveRecorders:
    """The recorders at work, innermost last, none while nobody audits.

    Nested audits each record everything that happens inside them.
    """

    def __init__(self) -> None:
        self.recorders: list[AuditRecorder] = []
        self.unchecked_listeners: list[Callable[[str, str], object]] = []

    def synced(
        self,
        kind: FindingKind,
        op: str,
        reason: str,
        count: int = 1,
        caller: FrameType | None = None,
    ) -> None:
        """Pass a sync on to every recorder."""
        for recorder in self.recorders:
            recorder.synced(kind, op, reason, count, caller)

    def sync(self, op: str, reason: str, count: int = 1) -> None:
        """Pass a certain sync on to every recorder."""
        self.synced(FindingKind.SYNC, op, reason, count)

    def leave_unchecked(self, op: str, reason: str) -> None:
        """Pass on that *op* cannot be judged."""
        self.leave_uncounted(op, reason)
        for notify in self.unchecked_listeners:
            notify(op, reason)

    def ran(self, op: str, result: object, *, computes: bool = True) -> None:
        """Count what *op* gave, for recorders that locate work."""
        for recorder in self.recorders:
            if recorder.locates_work:
                recorder.log.saw(op, result, computes=computes)

    @property
    def locates_work(self) -> bool:
        """Whether a recorder wants to know what ran where."""
        return any(recorder.locates_work for recorder in self.recorders)

    copy = _by_all("copy")
    launch = _by_all("launch")
    leave_uncounted = _by_all("leave_unchecked")
    remember_forward = _by_all("remember_forward")
    take_as_eager = _by_all("take_as_eager")

    def count(self, metric: Metric, more: int = 1) -> None:
        """Count *more* of a *metric* of ``AUDITED``."""
        for recorder in self.recorders:
            recorder.counts[metric.name] += more


WATCH: Final = ActiveRecorders()
"""One per process, as there is one device; threads share it."""
