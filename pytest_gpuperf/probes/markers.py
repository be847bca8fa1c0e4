"""Which call in a trace a marker speaks of: the next one, or one that is over."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from itertools import groupby

from .trace import Span
from .trace import Trace
from .trace import innermost


def markers_before(
    trace: Trace, spans: Sequence[Span], ops: Sequence[Span | None]
) -> dict[Span, str]:
    """Name the marker of each of *spans*, in the operations *ops*, that has one.

    A marker is put right before its call. So it is that of the next call on its
    thread, if both are in the same operation and step, and of no other.
    """
    around = dict(zip(trace.markers, innermost(trace, trace.markers), strict=True))
    around |= dict(zip(spans, ops, strict=True))
    marks = set(trace.markers)
    found: dict[Span, str] = {}
    for events in _by_thread(trace, (*trace.markers, *spans)):
        last: Span | None = None
        for event in events:
            if event not in marks and last in marks and around[last] is around[event]:
                found[event] = last.name
            last = event
    return found


def markers_behind(trace: Trace, waits: Sequence[Span]) -> dict[Span, str]:
    """Name the late marker of each of *waits* that has one.

    Late markers come when an operation has returned to Python, as many of them as
    torch warned of waits in it. So each is that of the last wait before it on its
    thread that has none yet; a wait of which torch did not warn is left behind, without
    one, by the first that follows the markers.
    """
    marks = set(trace.late_markers)
    found: dict[Span, str] = {}
    for events in _by_thread(trace, (*trace.late_markers, *waits)):
        open_waits: list[Span] = []
        were_marked = False
        for event in events:
            if event in marks:
                if open_waits:
                    found[open_waits.pop()] = event.name
            else:
                open_waits = [event] if were_marked else [*open_waits, event]
            were_marked = event in marks
    return found


def _by_thread(trace: Trace, spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Groups of *spans* of one thread in one step, each in the order of time."""
    placed = [(str(s.thread), trace.step_at(s.start_us), s) for s in spans]
    inside = [(thread, step, span) for thread, step, span in placed if step is not None]
    inside.sort(key=lambda place: (place[0], place[1], place[2].middle_us))
    for _, group in groupby(inside, key=lambda place: place[:2]):
        yield [span for _, _, span in group]
