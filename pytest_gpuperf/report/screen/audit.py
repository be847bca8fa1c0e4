"""Findings of an audit: what repeats, with its source and its fix."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...devices.pretend.audit_record import AuditFinding
from ...devices.pretend.audit_record import AuditKind
from ...devices.pretend.audit_record import CopyDirection
from ...devices.pretend.audit_record import StepAudit
from ...devices.pretend.audit_record import Unjudged
from ...devices.source_lines import Site
from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import Location
from ...model.finding import Phase
from ...model.metrics import PEAK_ALLOCATED
from ..numbers import format_value
from ..remedies import remedy_of
from ..wrapping import REASON_INDENT
from ..wrapping import broken
from ..wrapping import labelled
from ..wrapping import wrapped
from .findings import ARROW
from .findings import source_lines
from .findings import times


AS_FINDINGS: Final = {
    AuditKind.SYNC: FindingKind.SYNC,
    AuditKind.COPY: FindingKind.COPY,
    AuditKind.MAYBE: FindingKind.MAYBE,
}

BEFORE_PACKAGE: Final = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")

LineOf = Callable[[str, int], str]
"""Returns a line of a file, or nothing where there is none."""


def audit_lines(
    audit: StepAudit,
    notes: Sequence[str],
    here: Path,
    *,
    line_of: LineOf = lambda _file, _line: "",
    command: str = "",
) -> tuple[str, ...]:
    """Return the answer in a line, then what repeats with its source and its fix.

    What happened once follows, what is unsure, what was not judged, *notes*, totals and
    the *command* to type next. Paths are relative to *here*.
    """
    found = [_finding(f, here, line_of) for f in audit.findings]
    pairs = list(zip(audit.findings, found, strict=True))
    repeats = [p for p in pairs if not p[0].once and p[0].kind is not AuditKind.MAYBE]
    once = [p for p in pairs if p[0].once and p[0].kind is not AuditKind.MAYBE]
    maybe = [p for p in pairs if p[0].kind is AuditKind.MAYBE]
    return (
        _answer(audit),
        *_blocks("", repeats, here, audit.steps),
        *_blocks("once, before the first step was over:", once, here, 0),
        *_blocks("perhaps (only a GPU can show):", maybe, here, audit.steps),
        *_listed("not judged (only a GPU can show):", audit.not_judged, here),
        *_listed("compiled on a GPU, judged as eager code:", audit.as_eager, here),
        *(
            line
            for note in notes
            for line in broken(note, first="note: ", rest=" " * 6)
        ),
        *_summary(audit, command),
    )


Found = tuple[AuditFinding, Finding]


def _finding(found: AuditFinding, here: Path, line_of: LineOf) -> Finding:
    """Return *found* as a finding with its line of source."""
    place = found.site.location or found.site.innermost
    shown = _relative(place, here)
    return Finding(
        kind=AS_FINDINGS[found.kind],
        op=found.op,
        api=None,
        per_step=1,
        blocked_ms=0.0,
        location=shown,
        reason=found.reason,
        source=line_of(place.file, place.line).strip() if place else "",
    )


def _blocks(
    title: str, pairs: Sequence[Found], here: Path, steps: int
) -> Iterator[str]:
    """Yield each place with its source, how often and why, and what to do about it."""
    if pairs and title:
        yield title
    for found, shown in sorted(pairs, key=lambda p: (-p[0].count, _order(p[0].site))):
        yield from _block(found, shown, here, steps)


def _block(
    found: AuditFinding, shown: Finding, here: Path, steps: int
) -> Iterator[str]:
    text = f"{_often(found, steps)}: {found.reason}"
    if shown.source and shown.location:
        yield f"{ARROW}{shown.location}"
        yield from source_lines(shown, text)
    else:
        place = shown.location or "line unknown"
        yield from wrapped(
            f"{place}: {found.op}, {text}", first=ARROW, rest=" " * REASON_INDENT
        )
    yield from _inside(found.site, here)
    remedy = remedy_of(shown)
    # What happens once costs nothing worth changing.
    if remedy is not None and not found.once:
        yield from labelled("fix", remedy.do)


def _inside(site: Site, here: Path) -> Iterator[str]:
    """Name the library's line behind the program's, and the forward of a backward."""
    place = site.location or site.innermost
    if site.innermost not in {None, place}:
        yield from labelled("inside", _where(site.innermost, here))
    if site.forward not in {None, place}:
        yield from labelled("of", _where(site.forward, here))


def _often(found: AuditFinding, steps: int) -> str:
    """Say how often, and in which part of a step if torch's code shows it."""
    phase = found.site.phase
    part = "" if phase is Phase.FORWARD else f" in the {phase.value}"
    if found.once or steps <= 1:
        return f"{times(found.count)}{part}"
    return f"{found.count / steps:.3g} per step{part}"


def _relative(place: Location | None, here: Path) -> Location | None:
    if place is None:
        return None
    file = place.file.removeprefix(f"{here}{os.sep}")
    return replace(place, file=BEFORE_PACKAGE.sub("", file))


def _order(site: Site) -> tuple[str, int]:
    place = site.location or site.innermost
    return (place.file, place.line) if place else ("", 0)


def _listed(title: str, unjudged: Iterable[Unjudged], here: Path) -> Iterator[str]:
    for number, item in enumerate(unjudged):
        if number == 0:
            yield title
        place = item.site.location or item.site.innermost
        yield from wrapped(
            f"{_where(place, here)}: {item.op}, {times(item.count)}: {item.reason}",
            first=ARROW,
            rest=" " * REASON_INDENT,
        )
        yield from _inside(item.site, here)


def _where(location: Location | None, here: Path) -> str:
    """Write a place as short as it can be found again."""
    return str(_relative(location, here) or "line unknown")


def _answer(audit: StepAudit) -> str:
    """Say in a line how often the CPU waits, as ``gpuperf memory`` says what is needed."""
    if not audit.touched_gpu:
        return "gpuperf: nothing ran on the GPU, so nothing was judged"
    return f"gpuperf: {'; '.join(_sums(audit))}"


def _summary(audit: StepAudit, command: str) -> Iterator[str]:
    if not audit.touched_gpu:
        return
    totals = audit.totals
    yield (
        f"copies: {_copied(audit, CopyDirection.H2D, totals.h2d_bytes)} to the GPU, "
        f"{_copied(audit, CopyDirection.D2H, totals.d2h_bytes)} to the CPU"
    )
    if command:
        yield f"next: {command}"
        yield "      exits with 1 when a wait is added"


def _sums(audit: StepAudit) -> Iterator[str]:
    certain = [f for f in audit.findings if f.kind is not AuditKind.MAYBE]
    once = sum(f.count for f in certain if f.once)
    often = audit.totals.syncs - once
    lines = len({_order(f.site) for f in certain if not f.once})
    where = f" on {_counted(lines, 'line')}" if lines else ""
    if audit.steps > 1:
        number = f"{often / audit.steps:.3g}"
        yield f"{number} wait{'' if number == '1' else 's'} per step{where}, {audit.steps} steps"
        if once:
            yield f"{_counted(once, 'wait')} once"
    else:
        yield f"{_counted(often, 'wait')}{where}"
    unsure = {
        "maybe": audit.totals.maybe,
        "not judged": sum(item.count for item in audit.not_judged),
    }
    parts = [f"{number} {what}" for what, number in unsure.items() if number]
    if parts:
        yield ", ".join(parts)


def _copied(audit: StepAudit, direction: CopyDirection, total_bytes: int) -> str:
    copies = sum(copy.count for copy in audit.copies if copy.direction is direction)
    return f"{copies} ({format_value(PEAK_ALLOCATED, total_bytes)})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
