"""What the profiled steps spend their time with: each moment belongs to one part.

Kernels that compute come first, then collectives that no computation hides, then copies
that run beside neither. The rest is time in which the GPU has nothing to do.
"""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from ..devices.protocol import TraceEvent
from ..model.diagnosis import Bottleneck
from ..model.finding import Location
from .busy import length_of
from .calls import TO_PAGEABLE
from .calls import Transaction
from .calls import functions_around
from .calls import transactions
from .communication import joined
from .communication import uncovered
from .gpu_work import Window
from .gpu_work import Work
from .gpu_work import WorkKind
from .gpu_work import calls_by_correlation
from .gpu_work import window_of
from .gpu_work import work_in
from .lateness import Blame
from .lateness import HostWait
from .lateness import Loading
from .lateness import blamed_gaps
from .lateness import gaps_between
from .loading import loader_spans
from .trace import Trace
from .trace import parse


FROM_HOST = "HtoD"
PAGEABLE = "(Pageable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Milliseconds of a step that go to one part, and in which it blocks the host.

    ``location`` is where most of them are lost.
    """

    bottleneck: Bottleneck
    ms: float
    blocked_ms: float = 0.0
    per_step: int = 0
    location: Location | None = None


def find_spent(events: Sequence[TraceEvent]) -> tuple[Spent, ...]:
    """Share the profiled steps out, the means over them; nothing without a kernel."""
    trace, work = parse(events), list(work_in(events))
    window = window_of(trace, work)
    if window is None:
        return ()
    waits = list(_waits(trace, window))
    loading = _loading(trace, events, window)
    lost = _lost(trace, work, window, waits, loading)
    blocked, counts = _blocked(waits, loading, window), _most_in_a_step(waits)
    return tuple(
        Spent(
            bottleneck=part,
            ms=sum(us for (which, _), us in lost.items() if which is part)
            / (1e3 * window.steps),
            blocked_ms=blocked[part] / (1e3 * window.steps),
            per_step=counts.get(part, 0),
            location=_worst(lost, part),
        )
        for part in dict.fromkeys(which for (which, _), us in lost.items() if us > 0)
    )


def _lost(
    trace: Trace,
    work: Sequence[Work],
    window: Window,
    waits: Sequence[HostWait],
    loading: Loading,
) -> dict[Blame, float]:
    computing = window.of(work, WorkKind.KERNEL, WorkKind.FILL)
    collectives = window.of(work, WorkKind.COLLECTIVE)
    copies = window.of(work, WorkKind.COPY)
    kernels = joined([*computing, *collectives])
    occupied = joined([*kernels, *copies])
    gaps = list(gaps_between(occupied, (window.start_us, window.end_us)))
    lost = blamed_gaps(gaps, waits, loading, _launched_at(trace, work))
    lost[Bottleneck.GPU, None] = length_of(computing)
    lost[Bottleneck.COMMUNICATION, None] = uncovered(collectives, computing)
    lost[Bottleneck.COPIES, _copied_at(trace, work)] += uncovered(copies, kernels)
    return lost


def _waits(trace: Trace, window: Window) -> Iterator[HostWait]:
    names = {copy.correlation: copy.name for copy in trace.copies if copy.correlation}
    for transaction in transactions(trace):
        calls = [call.span for call in (transaction.copy, transaction.wait) if call]
        name = next(filter(None, (names.get(c.correlation or 0) for c in calls)), "")
        end_us = max(call.end_us for call in calls)
        if end_us > window.start_us and _blocks(transaction, name):
            from_host = FROM_HOST in name
            part = Bottleneck.COPIES if from_host else Bottleneck.SYNCS
            yield HostWait(
                step=transaction.last.step,
                start_us=min(call.start_us for call in calls),
                end_us=end_us,
                length_us=transaction.duration_us,
                blame=(part, transaction.location),
            )


def _blocks(transaction: Transaction, copy: str) -> bool:
    """Whether the host is blocked: a copy from pageable memory is staged by its call."""
    staged = FROM_HOST in copy and PAGEABLE in copy
    to_pageable = TO_PAGEABLE.fullmatch(copy) is not None
    return transaction.wait is not None or staged or to_pageable


def _loading(trace: Trace, events: Sequence[TraceEvent], window: Window) -> Loading:
    spans = list(loader_spans(events))
    known = (place for place in functions_around(trace, spans) if place is not None)
    return Loading(
        intervals=window.clipped((span.start_us, span.end_us) for span in spans),
        location=next(known, None),
    )


def _launched_at(
    trace: Trace, work: Sequence[Work]
) -> Callable[[float], Location | None]:
    """Return what tells the function that launched the work which begins at a moment."""
    calls = calls_by_correlation(trace)
    begun = {w.start_us: calls.get(w.correlation or 0) for w in work}
    known = {moment: call for moment, call in begun.items() if call is not None}
    places = functions_around(trace, list(known.values()))
    found: Mapping[float, Location | None] = dict(zip(known, places, strict=True))
    return found.get


def _copied_at(trace: Trace, work: Sequence[Work]) -> Location | None:
    """Return where the longest copy was started, of those whose line is known."""
    lasting = {w.correlation: w.end_us - w.start_us for w in work if w.correlation}
    known = [
        (lasting.get(transaction.copy.span.correlation or 0, 0.0), transaction.location)
        for transaction in transactions(trace)
        if transaction.copy is not None
    ]
    return max(known, key=lambda one: one[0], default=(0.0, None))[1]


def _most_in_a_step(waits: Sequence[HostWait]) -> Mapping[Bottleneck, int]:
    """Return how often the step with most of them waits, by part."""
    by_step = Counter((wait.blame[0], wait.step) for wait in waits)
    most: dict[Bottleneck, int] = {}
    for (part, _), count in by_step.items():
        most[part] = max(count, most.get(part, 0))
    return most


def _blocked(
    waits: Sequence[HostWait], loading: Loading, window: Window
) -> Mapping[Bottleneck, float]:
    """Return the microseconds of *window* in which each part blocks the host."""
    blocked: dict[Bottleneck, float] = defaultdict(float)
    blocked[Bottleneck.LOADER] = length_of(loading.intervals)
    for wait in waits:
        inside_us = min(wait.end_us, window.end_us)
        inside_us -= max(wait.start_us, window.start_us)
        blocked[wait.blame[0]] += max(0.0, min(wait.length_us, inside_us))
    return blocked


def _worst(lost: Mapping[Blame, float], part: Bottleneck) -> Location | None:
    """Return where *part* loses most, of the places that are known."""
    known = [
        (us, place) for (which, place), us in lost.items() if which is part and place
    ]
    return max(known, key=lambda one: one[0])[1] if known else None
