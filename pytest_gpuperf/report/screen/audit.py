"""Findings of an audit as a table of 80 columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...devices.pretend.audit_record import AuditFinding
from ...devices.pretend.audit_record import AuditKind
from ...devices.pretend.audit_record import CopyDirection
from ...devices.pretend.audit_record import StepAudit
from ...devices.pretend.audit_record import Unjudged
from ...devices.source_lines import Site
from ...model.finding import Location
from ...model.finding import Phase
from ...model.metrics import PEAK_ALLOCATED
from ..numbers import format_value
from ..wrapping import broken


AUDIT_HEADER: Final = ("count", "kind", "phase", "line, operation and reason")
ONCE_PHASE: Final = "start"
"""Shown as the phase of what was done once, before the first step was over."""

AUDIT_INDENT: Final = 25
"""Column of the last cell."""

BEFORE_PACKAGE: Final = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")


def audit_lines(audit: StepAudit, notes: Sequence[str], here: Path) -> tuple[str, ...]:
    """Return the findings most frequent first, what happened once after what every step
    does, what is unsure after what is certain, what was not judged, *notes*, and totals; paths are relative to *here*.
    """
    return (
        *_table(_sorted(audit.findings), here),
        *_listed("not judged, only a GPU can tell:", audit.not_judged, here),
        *_listed("compiled on a GPU, judged as eager code:", audit.as_eager, here),
        *(
            line
            for note in notes
            for line in broken(note, first="note: ", rest=" " * 6)
        ),
        *_summary(audit),
    )


def _sorted(findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    return sorted(
        findings,
        key=lambda f: (f.kind is AuditKind.MAYBE, f.once, -f.count, _order(f.site)),
    )


def _order(site: Site) -> tuple[str, int]:
    place = site.location or site.innermost
    return (place.file, place.line) if place else ("", 0)


def _table(findings: Iterable[AuditFinding], here: Path) -> Iterator[str]:
    rows = [line for finding in findings for line in _row(finding, here)]
    if rows:
        yield _cells(*AUDIT_HEADER)
        yield from rows


def _row(finding: AuditFinding, here: Path) -> Iterator[str]:
    kind, phase = finding.kind.value, _phase(finding.site, once=finding.once)
    first, *others = _texts(finding, here)
    yield _cells(str(finding.count), kind, phase, first)
    yield from others


def _phase(site: Site, *, once: bool = False) -> str:
    """Name the phase that torch's code on the stack shows; of the user's own none does."""
    if site.phase is not Phase.FORWARD:
        return str(site.phase.value)
    return ONCE_PHASE if once else ""


def _listed(title: str, unjudged: Iterable[Unjudged], here: Path) -> Iterator[str]:
    for number, item in enumerate(unjudged):
        if number == 0:
            yield title
        first, *others = _texts(item, here)
        yield _cells(str(item.count), "", _phase(item.site), first)
        yield from others


def _cells(count: str, kind: str, phase: str, text: str) -> str:
    return f"{count:>5}  {kind:<5}  {phase:<9}  {text}"


def _texts(found: AuditFinding | Unjudged, here: Path) -> Iterator[str]:
    """Lines of the last cell, all but the first one indented."""
    site = found.site
    place = site.location or site.innermost
    yield _where(place, here) if place else "line unknown"
    if site.innermost not in {None, place}:
        yield from _wrapped(f"inside {_where(site.innermost, here)}")
    if site.forward not in {None, place}:
        yield from _wrapped(f"backward of {_where(site.forward, here)}")
    yield from _wrapped(f"{found.op}: {found.reason}")


def _wrapped(text: str) -> tuple[str, ...]:
    return broken(text, first=" " * AUDIT_INDENT, rest=" " * AUDIT_INDENT)


def _where(location: Location | None, here: Path) -> str:
    """Write a place as short as it can be found again."""
    if location is None:
        return "line unknown"
    file = location.file.removeprefix(f"{here}{os.sep}")
    return f"{BEFORE_PACKAGE.sub('', file)}:{location.line} in {location.function}"


def _summary(audit: StepAudit) -> Iterator[str]:
    if not audit.touched_gpu:
        yield "gpuperf: nothing ran on the GPU, so nothing was judged"
        return
    totals = audit.totals
    yield (
        f"copies: {_copied(audit, CopyDirection.H2D, totals.h2d_bytes)} to the device, "
        f"{_copied(audit, CopyDirection.D2H, totals.d2h_bytes)} to the host"
    )
    certain = [f for f in audit.findings if f.kind is not AuditKind.MAYBE]
    lines = len({_order(finding.site) for finding in certain})
    where = f" on {_counted(lines, 'line')}" if lines else ""
    yield (
        f"gpuperf: {_counted(totals.syncs, 'sync')}{where}, "
        f"{totals.maybe} maybe, {sum(u.count for u in audit.not_judged)} not judged"
    )


def _copied(audit: StepAudit, direction: CopyDirection, total_bytes: int) -> str:
    copies = sum(copy.count for copy in audit.copies if copy.direction is direction)
    return f"{copies} ({format_value(PEAK_ALLOCATED, total_bytes)})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
