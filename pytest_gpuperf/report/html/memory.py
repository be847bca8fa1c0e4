"""Memory at the peak of a step by purpose: one bar with a legend."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.metrics import PEAK_ALLOCATED
from ..numbers import format_value
from .markup import Markup
from .markup import tag
from .pictures import PICTURE_WIDTH
from .pictures import figure
from .pictures import picture


MEMORY_HEIGHT: Final = 22


def memory_figures(findings: Sequence[Finding]) -> Iterator[Markup]:
    """Draw a bar for each peak with known parts."""
    for finding in findings:
        if finding.kind is FindingKind.PEAK and any(n for _, n in finding.held_for):
            yield _figure(finding)


def _figure(peak: Finding) -> Markup:
    parts = sorted(peak.held_for, key=lambda part: -part[1])
    total = sum(nbytes for _, nbytes in parts)
    said = [
        f"{name} {_size(nbytes)} ({_share(nbytes, total)})" for name, nbytes in parts
    ]
    svg = picture(
        *_bars([nbytes for _, nbytes in parts], total),
        box=f"0 0 {PICTURE_WIDTH} {MEMORY_HEIGHT}",
        height=MEMORY_HEIGHT,
    )
    items = (
        tag("li", tag("i", class_=f"part p{number}"), text)
        for number, text in enumerate(said)
    )
    title = f"memory at the peak, {_size(total)}, from left to right"
    return figure(title, svg, tag("ul", *items, class_="legend"))


def _bars(sizes: Sequence[int], total: int) -> Iterator[Markup]:
    """Yield a rectangle for each of *sizes*, with a gap to the next one."""
    starts = accumulate(sizes, initial=0)
    for number, (size, start) in enumerate(zip(sizes, starts, strict=False)):
        width = max(1.0, PICTURE_WIDTH * size / total - 2)
        yield tag(
            "rect",
            class_=f"p{number}",
            x=f"{PICTURE_WIDTH * start / total:.1f}",
            width=f"{width:.1f}",
            height=MEMORY_HEIGHT,
        )


def _size(nbytes: int) -> str:
    return format_value(PEAK_ALLOCATED, nbytes)


def _share(nbytes: int, total: int) -> str:
    return f"{100 * nbytes / total:.0f} %"
