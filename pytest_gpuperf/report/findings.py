"""Causes and their places, as lines."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Location
from ..model.finding import Phase
from ..model.memory_metric import PEAK_ALLOCATED
from ..model.metric import H2D_BYTES
from ..model.metric import STEP_MS
from ..model.metric import SYNCS
from ..model.verdict import TestVerdict
from .labels import INDENT
from .labels import labelled
from .numbers import format_value
from .numbers import join_fitting
from .wrapping import WIDTH


MOST_FINDINGS: Final = 8
MOST_MAYBES: Final = 2
MOST_PEAK_LINES: Final = 12
MOST_PLACES: Final = 60

LABELS: Final = {
    FindingKind.MAYBE: "maybe",
    FindingKind.MEMORY: "holds",
    FindingKind.PEAK: "peak",
}

OUTSIDE_THE_STEP: Final = {
    FindingKind.MEMORY: "memory from before the step",
    FindingKind.PEAK: "when the step begins",
}
"""What stands for the line of that which is in no phase."""

INSTALLED: Final = "-packages/"
"""Behind it the path of an installed file says enough."""


def finding_lines(
    findings: Sequence[Finding], failing: Collection[str], room: int
) -> tuple[str, ...]:
    """Name the causes of the *failing* metrics, worst first, in *room* lines if it can.

    Where nothing is known to cause them, syncs are named. What may wait stands apart,
    where syncs failed.
    """
    named = [f for f in findings if set(f.metrics).intersection(failing)]
    named = named or [f for f in findings if SYNCS.name in f.metrics]
    lines = _fitting(named, room, MOST_FINDINGS)
    if SYNCS.name not in failing:
        return lines
    maybes = [f for f in findings if f.kind is FindingKind.MAYBE]
    return (*lines, *_fitting(maybes, room - len(lines), MOST_MAYBES))


def peak_lines(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Say where most memory is taken and what for; nothing where that is not known."""
    peaks = [f for f in findings if f.kind is FindingKind.PEAK]
    held = [f for f in findings if f.kind is FindingKind.MEMORY]
    return _fitting([*peaks, *held], MOST_PEAK_LINES, MOST_FINDINGS)


def _fitting(findings: Sequence[Finding], room: int, most: int) -> tuple[str, ...]:
    worst = sorted(findings, key=badness)
    lines: tuple[str, ...] = ()
    for shown in range(1, min(len(worst), most) + 1):
        more = _shown(worst, shown)
        if lines and len(more) > room:
            break
        lines = more
    return lines


def badness(finding: Finding) -> tuple[bool, float, int, int]:
    """The peak, then what waits longest, moves or holds most, happens most often."""
    moved = finding.moved_bytes + finding.held_bytes
    is_peak = finding.kind is FindingKind.PEAK
    return not is_peak, -finding.blocked_ms, -moved, -finding.per_step


def _shown(worst: Sequence[Finding], shown: int) -> tuple[str, ...]:
    left = len(worst) - shown
    return (
        *chain.from_iterable(_lines(finding) for finding in worst[:shown]),
        *labelled("", f"and {left} more" if left else ""),
    )


def _lines(finding: Finding) -> Iterator[str]:
    label = LABELS.get(finding.kind, "at")
    place = place_of(finding)
    text = cause(finding)
    start = f"  {label}".ljust(INDENT)
    line = f"{start}{place}: {text}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"{start}{place}:"
        yield " " * INDENT + text
    if finding.innermost:
        yield f"{' ' * INDENT}inside {short(finding.innermost)}"
    yield from labelled("", finding.reason)


def place_of(finding: Finding) -> str:
    """Name its line, or what is known in place of it."""
    return str(short(finding.location) or _elsewhere(finding))


def _elsewhere(finding: Finding) -> str:
    unknown = "line unknown"
    return unknown if finding.phase else OUTSIDE_THE_STEP.get(finding.kind, unknown)


def short(location: Location | None) -> Location | None:
    """Name an installed file from its package on."""
    if location is None:
        return None
    return replace(location, file=location.file.rpartition(INSTALLED)[2])


def cause(finding: Finding) -> str:
    """Name what it is, how often and how large."""
    if finding.kind is FindingKind.BREAK:
        return "graph break"
    if finding.kind is FindingKind.RECOMPILE:
        return f"compiled again, {_times(finding.per_step)}"
    if finding.held_bytes:
        phase = finding.phase.value if finding.phase else ""
        return ", ".join(filter(None, (finding.op, phase, _held(finding))))
    named = finding.op or finding.api or finding.kind.value
    if finding.op and finding.api:
        named = f"{finding.op} ({finding.api})"
    parts = [named, _phase(finding), f"{finding.per_step} a step"]
    if finding.blocked_ms:
        parts.append(format_value(STEP_MS, finding.blocked_ms, digits=3))
    if finding.moved_bytes:
        parts.append(format_value(H2D_BYTES, finding.moved_bytes))
    return ", ".join(filter(None, parts))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _held(finding: Finding) -> str:
    held = format_value(PEAK_ALLOCATED, finding.held_bytes)
    if finding.kind is FindingKind.PEAK:
        return held
    return f"{held} in {finding.per_step} block{'s' if finding.per_step > 1 else ''}"


def _phase(finding: Finding) -> str:
    """Name the phase where it is not the obvious one."""
    if finding.phase is None or finding.phase is Phase.FORWARD:
        return ""
    if finding.forward is None:
        return str(finding.phase.value)
    return f"{finding.phase.value} of {finding.forward.file}:{finding.forward.line}"


def maybe_remark(findings: Sequence[Finding]) -> str:
    """Say in a line where the host may wait; nothing where it cannot."""
    maybes = [f for f in findings if f.kind is FindingKind.MAYBE]
    if not maybes:
        return ""
    places = list(dict.fromkeys(_place(f.location) for f in maybes))
    waits = sum(f.per_step for f in maybes)
    plural = "s" if waits > 1 else ""
    return f"maybe {waits} more sync{plural} at {join_fitting(places, MOST_PLACES)}"


def _place(location: Location | None) -> str:
    shown = short(location)
    return f"{shown.file}:{shown.line}" if shown else "line unknown"


def allowed_lines(verdicts: Sequence[TestVerdict]) -> Iterator[str]:
    """List the syncs that their author allows, and why."""
    for verdict in verdicts:
        for finding in verdict.findings:
            if finding.allowed is not None:
                yield (
                    f"allowed in {verdict.test}: {short(finding.location)}: "
                    f"{cause(finding)}: {finding.allowed}"
                )
