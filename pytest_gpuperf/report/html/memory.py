"""Memory as pictures: over the step as an area for each purpose, and at its peak as a bar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from math import floor, log10
from typing import Final

from ...model.baseline import StepSummary
from ...model.finding import CUBLAS_WORKSPACES, Finding, FindingKind, MemoryCourse
from ...model.metrics import PEAK_ALLOCATED
from ..numbers import size_in_words, unit_of
from .contents import Markup, rendered
from .pictures import percent


UNKNOWN_STEP: Final = StepSummary()
"""Of a step that no baseline sums up."""

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
                yield _course_figure(finding.course, _kept(finding))
            if any(n for _, n in finding.held_for):
                yield _peak_figure(finding, stored.peak_bytes)


def _kept(peak: Finding) -> str:
    return size_in_words(peak.workspace_bytes) if peak.workspace_bytes else ""


def _peak_figure(peak: Finding, before: Mapping[str, int]) -> Markup:
    """Draw what the peak is for, below what that of the baseline was for."""
    now = dict(sorted(_own(peak.held_for), key=lambda part: -part[1]))
    total = sum(now.values()) or 1
    before = dict(_own(before.items()))
    # In one order, so that what grew is below what it was.
    names = list(dict.fromkeys((*now, *before)))
    was = {name: before.get(name, 0) for name in names} if before else {}
    rows = {"baseline": was, "now": now} if was else {"now": now}
    full = max(sum(sizes.values()) for sizes in rows.values()) or 1
    kept = f" and {_kept(peak)} of cuBLAS" if _kept(peak) else ""
    return rendered(
        "bars",
        title=f"memory at the peak, {size_in_words(total)}{kept}",
        rows={name: [*_parts(sizes, full)] for name, sizes in rows.items()},
        colour=_purpose,
        entries=[
            (_purpose(n), f"{n} {_held(now.get(n, 0), total, was.get(n))}")
            for n in names
        ],
    )


def _parts(sizes: Mapping[str, float], total: float) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each part, where it begins and how wide it is."""
    starts = accumulate(sizes.values(), initial=0.0)
    for (name, size), start in zip(sizes.items(), starts, strict=False):
        if size:
            width = percent(max(THINNEST_SHARE, size / total))
            yield name, percent(start / total), width


THINNEST_SHARE: Final = 0.002
"""Width of the thinnest part, so that it can be seen."""


def _own(parts: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the *parts* that are the step's own: a library's would hide them."""
    yield from (part for part in parts if part[0] != CUBLAS_WORKSPACES)


def _held(nbytes: int, total: int, before: int | None) -> str:
    """Write ``60.00 MiB (60 %), was 40.00 MiB``, if it changed."""
    text = f"{size_in_words(nbytes)} ({100 * nbytes / total:.0f} %)"
    return (
        text
        if before in {None, nbytes}
        else f"{text}, was {size_in_words(before or 0)}"
    )


PURPOSE_COLOURS: Final = {
    "parameters": "p0",
    "optimizer state": "p3",
    "gradients": "p1",
    "activations": "p2",
    "inputs": "p5",
    "temporaries": "p4",
}
"""The same purpose has the same colour in every picture."""


def _purpose(name: str) -> str:
    return PURPOSE_COLOURS.get(name, "p7")


def _moments(course: MemoryCourse) -> int:
    return max((len(row) for row in course.kib), default=0)


def _rows(course: MemoryCourse) -> dict[str, list[int]]:
    """Return the sizes of each purpose at each moment, those that never change as well."""
    count = _moments(course)
    return {
        name: list(row) if len(row) == count else [*row, 0][:1] * count
        for name, row in zip(course.purposes, course.kib, strict=False)
        if name != CUBLAS_WORKSPACES
    }


def _course_figure(course: MemoryCourse, kept: str) -> Markup:
    own = _rows(course)
    rows = list(own.values()) or [[0] * _moments(course)]
    tops = list(accumulate(rows, _on_top))
    full = max(*tops[-1], 1) * KIB * 1.05
    ticks = ticks_of(full)
    count = len(rows[0])
    heights = [[_height(kib * KIB, full) for kib in top] for top in tops]
    grid = "".join(f"M0 {_height(v, full)}H{count}" for v, _ in ticks)
    return rendered(
        "course",
        box=f"0 0 {count} {BOTTOM}",
        height=COURSE_HEIGHT,
        ticks=[(round(COURSE_HEIGHT * (1 - v / full), 1), text) for v, text in ticks],
        drawn=(*_areas(own, heights), ("grid", grid), *_marks(course, count)),
        phases=[(percent(at), "mid", text) for at, text in _phases(course, count)],
        entries=(
            (_purpose(name), f"{name}, up to {size_in_words(max(row) * KIB)}")
            for name, row in own.items()
            if any(row)
        ),
        kept=kept,
        peak=_peak_in_words(course, max(tops[-1]) * KIB),
    )


MOST_TICKS: Final = 4
"""Steps between the ticks of the axis, at most."""

NICE_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)

TINY: Final = 1e-9
"""What rounding may add to a tick."""


def ticks_of(full: float) -> list[tuple[float, str]]:
    """Return round sizes from 0 to *full*, written in one unit."""
    symbol, size = unit_of(PEAK_ALLOCATED, full)
    least = full / size / MOST_TICKS
    power = 10.0 ** floor(log10(least))
    step = next(nice * power for nice in NICE_STEPS if nice * power >= least)
    return [
        (step * n * size, f"{step * n:g} {symbol}")
        for n in range(floor(full / size / step + TINY) + 1)
    ]


def _on_top(below: Sequence[int], row: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(below, row, strict=True)]


def _height(nbytes: float, full: float) -> int:
    return round(BOTTOM * (1 - nbytes / full))


def _areas(
    names: Iterable[str], heights: Sequence[Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """Yield the areas, the highest first: each covers the lower part of the one before."""
    for name, row in reversed(list(zip(names, heights, strict=False))):
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
    return f"peak {size_in_words(nbytes)}{f' in {phase[0]}' if phase else ''}"
