"""Causes with their lines, and what a step waits for, as lists."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ...model.finding import Diagnosis
from ...model.finding import Finding
from ...model.finding import FindingKind
from ..screen.bottleneck import heading
from ..screen.bottleneck import sentences
from ..screen.findings import badness
from ..screen.findings import cause
from ..screen.findings import place_of
from ..screen.findings import short
from .contents import SourceLines
from .markup import Markup
from .markup import escaped
from .markup import tag


def diagnosis_list(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    """Yield a titled list of the parts; nothing if there is no diagnosis."""
    if diagnosis is None:
        return
    items = [
        tag("li", tag("b", amount), f" {text}") for amount, text in sentences(diagnosis)
    ]
    title = heading(diagnosis).rstrip(":")
    yield tag("h3", f"{title[0].upper()}{title[1:]}")
    yield tag("ol", *items, class_="findings diagnosis")


# Causes and their places, each with its line of source.

MOST_PAGE_FINDINGS: Final = 12
"""Findings of a group that are listed."""

GROUPS: Final = {
    "Where the host waits": (FindingKind.SYNC, FindingKind.COPY),
    "Where it may wait, only a GPU can tell": (FindingKind.MAYBE,),
    "What goes between host and device": (FindingKind.TRANSFER,),
    "What torch.compile does with the code": (
        FindingKind.BREAK,
        FindingKind.RECOMPILE,
    ),
    "What takes the memory": (
        FindingKind.LEFT,
        FindingKind.PEAK,
        FindingKind.MEMORY,
    ),
    "What runs more operations than before": (FindingKind.WORK,),
}


def findings_list(findings: Sequence[Finding], lines: SourceLines) -> Iterator[Markup]:
    """Yield a titled list for each group, what is worst first."""
    for title, kinds in GROUPS.items():
        group = sorted((f for f in findings if f.kind in kinds), key=badness)
        if group:
            items = [_item(finding, lines) for finding in group[:MOST_PAGE_FINDINGS]]
            left = len(group) - len(items)
            more = [tag("li", f"and {left} more")] if left else []
            yield tag("h3", title)
            yield tag("ul", *items, *more, class_="findings")


def _item(finding: Finding, lines: SourceLines) -> Markup:
    return tag("li", *_parts(finding, lines))


def _parts(finding: Finding, lines: SourceLines) -> Iterator[Markup]:
    yield tag("code", place_of(finding))
    yield escaped(f": {cause(finding)}")
    at = finding.location
    line = lines.get((at.file, at.line)) if at and at.exact else None
    if line is not None:
        yield tag("pre", line)
    if finding.innermost:
        yield tag("p", f"inside {short(finding.innermost)}")
    if finding.reason:
        yield tag("p", finding.reason)
    if finding.allowed is not None:
        yield tag("p", f"allowed: {finding.allowed}")
