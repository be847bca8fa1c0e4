"""One step as a picture: what the CPU enqueues, what the GPU has to do, where it has nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Final, NamedTuple

from ...model.finding import Finding
from ...model.metrics import STEP_MS, counted
from ..numbers import format_value
from ..remedies import remedy_of, spot_of
from ..screen.findings import badness, late_in_words, place_of
from .contents import Markup, rendered
from .pictures import PICTURE_WIDTH


# A step played with one unit of time for each operation.

ENQUEUED: Final = 0.6
"""Units in which the CPU enqueues an operation that takes the GPU 1."""

PAUSE: Final = 0.07
"""What the CPU does after a wait, before it enqueues more: a share of the step, at most."""

PAUSES: Final = 0.6
"""The same of all waits together."""

Stretch = tuple[float, float]
"""Where something begins and ends."""


class Lanes(NamedTuple):
    """A step on both lanes: operations, and for each place of a wait that wait and its gap."""

    enqueued: Sequence[Stretch]
    done: Sequence[Stretch]
    places: Sequence[int]
    waits: Sequence[Stretch]
    gaps: Sequence[Stretch]
    end: float


def played(operations: int, waits: Iterable[int]) -> Lanes:
    """Play a step of *operations* that waits after so many of them, once at each place.

    The CPU runs ahead of the GPU. At a wait it stops until all is done; then the GPU has
    nothing to do until the CPU has enqueued more.
    """
    places = sorted(set(waits))
    pause = operations * min(PAUSE, PAUSES / max(1, len(places)))
    enqueued, done, stops, gaps = (list[Stretch]() for _ in range(4))
    cpu = gpu = 0.0
    before = 0
    for place in (*places, operations):
        count = place - before
        begin = max(gpu, cpu + ENQUEUED) if count else gpu
        enqueued.append((cpu, cpu + ENQUEUED * count))
        done.append((begin, begin + count))
        cpu, gpu, before = cpu + ENQUEUED * count, begin + count, place
        if len(gaps) < len(places):
            stops.append((cpu, gpu))
            cpu = gpu + pause
            gaps.append((gpu, cpu + ENQUEUED * (place < operations)))
    return Lanes(enqueued, done, places, stops, gaps, max(cpu, gpu))


# The picture: two lanes of the baseline, two of now, and below them what waits at each gap.

MOST_LABELS: Final = 8
"""Lines that are named; the others are counted."""

LANE: Final = 16
"""Height of a lane."""

GROUP: Final = 62
"""Height of a title with two lanes."""

TITLE: Final = 17
"""Height of what is above the lanes."""

NAMES_PERCENT: Final = 9
"""Width for the names of the lanes."""


def step_figure(
    findings: Iterable[Finding], name: str = "one step"
) -> Iterator[Markup]:
    """Draw a step with its waits, below that of the baseline; nothing without a wait."""
    waits = waits_of(findings)
    if waits:
        more = len(waits) - MOST_LABELS
        left = counted(more, "more line") if more > 0 else ""
        title = f"{name}, in order of its {counted(_operations(waits), 'operation')}"
        yield rendered("step", title=title, picture=step_svg(waits), left=left)


def waits_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the *findings* of which it is known where in a step they wait, worst first."""
    known = (f for f in findings if f.waits_after and f.operations > 0)
    return sorted((finding for finding in known if finding.is_certain), key=badness)


def _operations(waits: Iterable[Finding]) -> int:
    return max(finding.operations for finding in waits)


def step_svg(waits: Sequence[Finding], room: int = 56, width: int = 0) -> Markup:
    """Draw *waits*, the worst first; labels have *room* characters where a page is wide.

    With a *width* it is a file of its own.
    """
    operations = _operations(waits)
    places = [_places(finding, operations) for finding in waits]
    both = list(zip(waits, places, strict=True))
    now = played(operations, chain(*places))
    known = [place for f, at in both if not f.is_new for place in at[: f.stored]]
    is_compared = any(finding.stored is not None for finding in waits)
    lanes = [played(operations, known), now] if is_compared else [now]
    end = max(lane.end for lane in lanes)
    begins = dict(zip(now.places, now.gaps, strict=True))
    named = [(begins[at[0]][0] / end, finding) for finding, at in both[:MOST_LABELS]]
    old = {*known} if is_compared else set()
    drawn = chain(*(_drawn(a, old, end, n * GROUP) for n, a in enumerate(lanes)))
    return rendered(
        "lanes",
        width=width,
        left=NAMES_PERCENT,
        group=GROUP,
        names=["baseline", "now"] if is_compared else [""],
        drawn=list(drawn),
        labels=_labels(named, room),
        spoken=_in_words(waits),
    )


def _places(finding: Finding, operations: int) -> list[int]:
    """Return where it waits in a step of *operations*, of which its own may have fewer."""
    share = operations / finding.operations
    known = (round(place * share) for place in finding.waits_after)
    return [min(max(0, place), operations) for place in known]


def _drawn(
    lanes: Lanes, old: Collection[int], end: float, top: int
) -> Iterator[tuple[str, str]]:
    """Yield the shapes of two lanes below a title that is at *top*."""
    cpu, gpu = top + TITLE, top + TITLE + LANE + 4
    yield "cpu", _boxes(lanes.enqueued, end, cpu)
    yield "gpu", _boxes(lanes.done, end, gpu)
    for ink, stretches, y in (("wait", lanes.waits, cpu), ("gap", lanes.gaps, gpu)):
        both = list(zip(lanes.places, stretches, strict=True))
        yield f"{ink} old", _boxes((it for at, it in both if at in old), end, y)
        yield ink, _boxes((it for at, it in both if at not in old), end, y)
    yield "tick", _ticks(lanes.enqueued, ENQUEUED, end, cpu)
    yield "tick", _ticks(lanes.done, 1.0, end, gpu)


def _boxes(stretches: Iterable[Stretch], end: float, top: int) -> str:
    places = ((_at(begin, end), _at(stop, end)) for begin, stop in stretches)
    return "".join(f"M{a} {top}v{LANE}H{b}v-{LANE}z" for a, b in places if a < b)


def _at(moment: float, end: float) -> int:
    return round(PICTURE_WIDTH * moment / end)


MOST_TICKED: Final = 120
"""Operations of a step up to which each is set apart from the next."""


def _ticks(stretches: Sequence[Stretch], unit: float, end: float, top: int) -> str:
    if sum(stop - begin for begin, stop in stretches) > MOST_TICKED * unit:
        return ""
    return "".join(
        f"M{_at(begin + n * unit, end)} {top}v{LANE}"
        for begin, stop in stretches
        for n in range(1, round((stop - begin) / unit))
    )


# What is written at the gaps.

MIDDLE: Final = 0.5

MOST_PLACE: Final = 20
"""Characters of a line's place: half of a picture on a phone."""

Label = tuple[float, str, str, str]
"""A share of the width, how the text is drawn, its line, and what there is room for."""


def _labels(gaps: Sequence[tuple[float, Finding]], room: int) -> list[Label]:
    """Return a label for each of *gaps*, the upper one first.

    A text goes towards the middle: no line to a lower one, further out, crosses it.
    """
    inwards = sorted(gaps, key=lambda gap: -abs(gap[0] - MIDDLE), reverse=True)
    return [(x, *_label(finding, x, room)) for x, finding in inwards]


def _label(finding: Finding, x: float, room: int) -> tuple[str, str, str]:
    side = " end" if x > MIDDLE else ""
    changed = finding.stored in {None, 0} or finding.has_risen
    at = finding.location
    place = f"{PurePath(at.file).name}:{at.line}" if at else place_of(finding)
    if len(place) > MOST_PLACE:
        place = f"…{place[1 - MOST_PLACE :]}"
    blocked = format_value(STEP_MS, finding.blocked_ms) if finding.blocked_ms else ""
    source = _around(finding, room - len(place) - len(blocked) - 4)
    more = "  ".join(filter(None, (blocked, source)))
    return f"{'new' if changed else 'old'}{side}", place, more


def _around(finding: Finding, room: int) -> str:
    """Return as much of the line as there is *room* for, to the end of what waits in it."""
    text = finding.source
    start, length = spot_of(remedy_of(finding), text)
    cut = max(0, start + length + 1 - room) if len(text) > room else 0
    shown = f"…{text[cut + 1 :]}" if cut else text
    return shown if len(shown) <= room else f"{shown[: room - 1]}…"


def _in_words(waits: Sequence[Finding]) -> str:
    """Say what the picture shows, for screen readers."""
    named = [
        f"{place_of(finding)}, {late_in_words(finding)}"
        for finding in waits[:MOST_LABELS]
    ]
    return f"the CPU waits at {'; '.join(named)}"
