"""One step as pictures: where its time goes, what CPU and GPU do, and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import accumulate
from itertools import groupby
from typing import Final

from ...model.baseline import StepSummary
from ...model.finding import Bottleneck
from ...model.finding import Diagnosis
from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import MemoryCourse
from ...model.finding import StepTimeline
from ...model.finding import Stretches
from ...model.finding import Wait
from ...model.metrics import PEAK_ALLOCATED
from ...model.metrics import STEP_MS
from ..numbers import format_value
from ..screen.bottleneck import BOTTLENECK_NAMES
from ..screen.findings import short
from .markup import Markup
from .markup import rendered
from .pictures import THINNEST_SHARE
from .pictures import Scale
from .pictures import bars
from .pictures import level
from .pictures import percent
from .pictures import ticks_of
from .pictures import upright


# Where the time of a step goes: one bar.

UNKNOWN_STEP: Final = StepSummary()
"""Of a step that no baseline sums up."""


def time_figure(
    diagnosis: Diagnosis | None,
    step_ms: float | None = None,
    stored: StepSummary = UNKNOWN_STEP,
    stored_ms: float | None = None,
) -> Iterator[Markup]:
    """Draw a stacked bar of what a step is spent on, below that of the baseline.

    Nothing if no clock could tell. Both are in milliseconds if both are known: *step_ms*
    and *stored_ms* in all.
    """
    parts = diagnosis.parts if diagnosis else ()
    now = {p.bottleneck.value: p.percent for p in parts if p.percent}
    if not now:
        return
    timed = step_ms is not None and (stored_ms is not None or not stored.spent_pct)
    before = _sizes(stored.spent_pct, stored_ms if timed else None)
    after = _sizes(now, step_ms if timed else None)
    texts = {
        name: f"{TIME_NAMES[name]} {_spent(name, now, before, after, timed=timed)}"
        for name in dict.fromkeys((*after, *before))
        if name in TIME_NAMES
    }
    rows = {"baseline": before, "now": after}
    yield bars("Where the time of a step goes", _colour, rows, texts)


TIME_NAMES: Final = {part.value: name for part, name in BOTTLENECK_NAMES.items()}


def _sizes(percents: Mapping[str, float], step_ms: float | None) -> dict[str, float]:
    share = 1.0 if step_ms is None else step_ms / 100
    return {name: percent * share for name, percent in percents.items()}


def _spent(
    name: str,
    percents: Mapping[str, float],
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    timed: bool,
) -> str:
    """Write ``35 %, 4.20 ms, was 0.120 ms``."""
    texts = [f"{percents.get(name, 0.0):.0f} %"]
    if timed:
        texts.append(_ms(1e3 * after.get(name, 0.0)))
    if before:
        was = before.get(name, 0.0)
        texts.append(f"was {_ms(1e3 * was) if timed else f'{was:.0f} %'}")
    return ", ".join(texts)


def _colour(bottleneck: str) -> str:
    """Return the class of what a step is spent on, the same in all pictures."""
    return f"b-{bottleneck}"


# What the CPU and the GPU do in one step: two lanes.

WORKING: Final = "working"
"""Colour of a CPU that does not wait."""

MOST_WAITS_NAMED: Final = 3

GPU_LANE: Final = (
    (Bottleneck.GPU, "kernels"),
    (Bottleneck.COMMUNICATION, "collectives"),
    (Bottleneck.COPIES, "copies"),
)


Lane = Iterator[tuple[str, Stretches]]
"""Colours, and when each is seen."""


def lanes_figure(timeline: StepTimeline | None) -> Iterator[Markup]:
    """Draw one step as two lanes, the longest wait named above them."""
    if timeline is None or timeline.length_us <= 0:
        return
    scale = Scale(0.0, timeline.length_us / 1e3)
    yield rendered(
        "lanes",
        length=_ms(timeline.length_us),
        cpu=_stretches(_cpu_lane(timeline), timeline.length_us),
        gpu=_stretches(_gpu_lane(timeline), timeline.length_us),
        longest=_longest(timeline),
        ticks=level((scale.share(ms), text) for ms, text in ticks_of(STEP_MS, scale)),
        entries=list(_lane_entries(timeline)),
    )


def _cpu_lane(timeline: StepTimeline) -> Lane:
    yield WORKING, ((0, timeline.length_us),)
    for wait in timeline.waits:
        yield _colour(wait.bottleneck.value), ((wait.start_us, wait.end_us),)


def _gpu_lane(timeline: StepTimeline) -> Lane:
    yield "idle", ((0, timeline.length_us),)
    # Kernels last: what runs beside a kernel hides no time.
    for part, name in reversed(GPU_LANE):
        yield _colour(part.value), getattr(timeline, name)


def _stretches(lane: Lane, whole_us: int) -> Iterator[tuple[str, str, str]]:
    """Yield a colour, where a stretch of it begins and how wide it is."""
    for colour, stretches in lane:
        for start_us, end_us in stretches:
            width = percent(max(THINNEST_SHARE, (end_us - start_us) / whole_us))
            yield colour, percent(start_us / whole_us), width


def _longest(timeline: StepTimeline) -> Iterator[tuple[str, str, str]]:
    """Name the line of the longest wait, where it is and on which side of that."""
    wait = max(timeline.waits, key=_length, default=None)
    if wait is None:
        return
    middle = (wait.start_us + wait.end_us) / 2 / timeline.length_us
    side = "end" if middle > 0.5 else ""  # noqa: PLR2004  half of the picture
    place = percent((wait.end_us if side else wait.start_us) / timeline.length_us)
    yield place, side, f"{_ms(_length(wait))} wait at {_line(wait)}"


def _line(wait: Wait) -> str:
    at = short(wait.location)
    return f"{at.file}:{at.line}" if at else BOTTLENECK_NAMES[wait.bottleneck]


def _length(wait: Wait) -> int:
    return wait.end_us - wait.start_us


def _ms(length_us: float) -> str:
    return format_value(STEP_MS, length_us / 1e3, digits=3)


def _lane_entries(timeline: StepTimeline) -> Iterator[tuple[str, str]]:
    yield WORKING, "the CPU works"
    lost: dict[tuple[Bottleneck, str], int] = {}
    for wait in timeline.waits:
        key = wait.bottleneck, _line(wait)
        lost[key] = lost.get(key, 0) + _length(wait)
    longest = sorted(lost.items(), key=lambda item: -item[1])[:MOST_WAITS_NAMED]
    for (bottleneck, place), length_us in longest:
        yield _colour(bottleneck.value), f"the CPU waits at {place}, {_ms(length_us)}"
    for part, name in GPU_LANE:
        stretches: Stretches = getattr(timeline, name)
        if stretches:
            total_us = sum(end - start for start, end in stretches)
            yield _colour(part.value), f"{name} on the GPU, {_ms(total_us)}"


# Memory: over the step as an area for each purpose, and at its peak as a bar.

COURSE_HEIGHT: Final = 170

BOTTOM: Final = 1000
"""Where a height of nothing is: a picture begins at its top."""

KIB: Final = 2**10


def memory_figures(
    findings: Sequence[Finding], stored: StepSummary = UNKNOWN_STEP
) -> Iterator[Markup]:
    """Draw memory over the step, and at its peak, where that is known."""
    for finding in findings:
        if finding.kind is FindingKind.PEAK:
            if finding.course is not None and _moments(finding.course) > 1:
                yield _course_figure(finding.course)
            if any(n for _, n in finding.held_for):
                yield _peak_figure(finding, stored.peak_bytes)


def _peak_figure(peak: Finding, before: Mapping[str, int]) -> Markup:
    """Draw what the peak is for, below what that of the baseline was for."""
    now = dict(sorted(peak.held_for, key=lambda part: -part[1]))
    total = sum(now.values())
    # In one order, so that what grew is below what it was.
    names = list(dict.fromkeys((*now, *before)))
    was = {name: before.get(name, 0) for name in names} if before else {}
    texts = {n: f"{n} {_held(now.get(n, 0), total, was.get(n))}" for n in names}
    rows = {"baseline": was, "now": now}
    return bars(f"memory at the peak, {_size(total)}", _purpose, rows, texts)


def _held(nbytes: int, total: int, before: int | None) -> str:
    """Write ``60.00 MiB (60 %), was 40.00 MiB``, if it changed."""
    text = f"{_size(nbytes)} ({100 * nbytes / total:.0f} %)"
    return text if before in {None, nbytes} else f"{text}, was {_size(before or 0)}"


PURPOSE_COLOURS: Final = {
    "parameters": "p0",
    "optimizer state": "p3",
    "gradients": "p1",
    "activations": "p2",
    "inputs": "p5",
    "temporaries": "p4",
    "cuBLAS workspaces": "p6",
}
"""The same purpose has the same colour in every picture."""


def _purpose(name: str) -> str:
    return PURPOSE_COLOURS.get(name, "p7")


def _moments(course: MemoryCourse) -> int:
    return max((len(row) for row in course.kib), default=0)


def _rows(course: MemoryCourse) -> list[list[int]]:
    """Return the sizes of each purpose at each moment, those that never change as well."""
    count = _moments(course)
    return [
        list(row) if len(row) == count else [*row, 0][:1] * count for row in course.kib
    ]


def _course_figure(course: MemoryCourse) -> Markup:
    rows = _rows(course)
    tops = list(accumulate(rows, _on_top))
    scale = Scale(0.0, max(*tops[-1], 1) * KIB * 1.05)
    ticks = ticks_of(PEAK_ALLOCATED, scale)
    count = len(rows[0])
    heights = [[_height(kib * KIB, scale) for kib in top] for top in tops]
    grid = "".join(f"M0 {_height(v, scale)}H{count}" for v, _ in ticks)
    return rendered(
        "course",
        box=f"0 0 {count} {BOTTOM}",
        height=COURSE_HEIGHT,
        ticks=upright(ticks, scale, COURSE_HEIGHT),
        drawn=(*_areas(course, heights), ("grid", grid), *_marks(course, count)),
        phases=level(_phases(course, count)),
        entries=(
            (_purpose(name), f"{name}, up to {_size(max(row) * KIB)}")
            for name, row in zip(course.purposes, rows, strict=False)
            if any(row)
        ),
        peak=_peak_in_words(course, max(tops[-1]) * KIB),
    )


def _on_top(below: Sequence[int], row: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(below, row, strict=True)]


def _height(nbytes: float, scale: Scale) -> int:
    return round(BOTTOM * (1 - scale.share(nbytes)))


def _areas(
    course: MemoryCourse, heights: Sequence[Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """Yield the areas, the highest first: each covers the lower part of the one before."""
    for name, row in reversed(list(zip(course.purposes, heights, strict=False))):
        steps = "".join(f"V{y}h{len(list(alike))}" for y, alike in groupby(row))
        yield f"area {_purpose(name)}", f"M0 {BOTTOM}{steps}V{BOTTOM}z"


def _peak(course: MemoryCourse, count: int) -> int:
    return min(max(course.peak, 0), count - 1)


def _marks(course: MemoryCourse, count: int) -> Iterator[tuple[str, str]]:
    """Yield a line at the peak, and one where a phase begins."""
    begins = "".join(f"M{at} 0V{BOTTOM}" for _, at in course.phases if at)
    if begins:
        yield "change", begins
    yield "peak", f"M{_peak(course, count) + 0.5} 0V{BOTTOM}"


def _phases(course: MemoryCourse, count: int) -> Iterator[tuple[float, str]]:
    """Yield the names of the phases, each in the middle of it, where there is room."""
    ends = [*(moment for _, moment in course.phases[1:]), count]
    for (phase, start), end in zip(course.phases, ends, strict=False):
        if end - start >= LABEL_ROOM * count:
            yield (start + end) / 2 / count, phase


LABEL_ROOM: Final = 0.14
"""Share of a picture's width that a label needs."""


def _peak_in_words(course: MemoryCourse, nbytes: float) -> str:
    at = _peak(course, _moments(course))
    phase = [phase for phase, start in course.phases if start <= at][-1:]
    return f"peak {_size(nbytes)}{f' in {phase[0]}' if phase else ''}"


def _size(nbytes: float) -> str:
    return format_value(PEAK_ALLOCATED, nbytes)
