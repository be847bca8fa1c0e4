"""Why a test failed: lines of source, causes, and what to do; all causes as lists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Final

from ...model.finding import Finding, FindingKind
from ...model.verdict import Verdict
from ..headline import merged_headlines, title
from ..remedies import METRIC_REMEDIES, NONE_KNOWN, remedy_of, spot_of
from ..screen.findings import (
    badness,
    blame_texts,
    cause,
    causes_of,
    explained,
    place_of,
    short,
)
from .contents import AROUND, Markup, Section, SourceLines, rendered


# The places that make a test fail, each with what happens there.

MOST_PLACES_SHOWN: Final = 3


Place = Sequence[Finding]
"""What is found at one line of source, or at what is known in its place, worst first."""


def places_of(section: Section, lines: SourceLines) -> list[Place]:
    """Return where what failed has its causes, the worst first, each with its source."""
    findings = section.verdict.findings if section.verdict else ()
    found: dict[str, list[Finding]] = {}
    failing = {verdict.metric for verdict in section.failing}
    for finding in sorted(causes_of(findings, failing), key=badness):
        known = replace(finding, source=line_of(finding, lines))
        found.setdefault(place_of(finding), []).append(known)
    return list(found.values())


def line_of(finding: Finding, lines: SourceLines) -> str:
    """Return the text of its line; nothing if only the function is known."""
    at = finding.location
    if at is None or not at.exact:
        return ""
    # As it ran first: the file may have changed since.
    return finding.source or lines.get((at.file, at.line), "").strip()


# What, where, why and what to do.


def answer(section: Section, lines: SourceLines) -> Markup:
    """Say what failed, where, why, and what to do; nothing if all passed."""
    failing = section.failing
    if not failing:
        return Markup()
    places = places_of(section, lines)
    heads = list(merged_headlines(failing))
    return rendered(
        "answer",
        heads=[text.partition(": ") for _, text in heads],
        places=[
            (place_of(place[0]), list(source_rows(place, lines)), _sentences(place))
            for place in places[:MOST_PLACES_SHOWN]
        ],
        left=len(places) - MOST_PLACES_SHOWN,
        operations=blame_texts(section.verdict.operations if section.verdict else ()),
        why=[(title(v.metric), v.because) for v, _ in heads if v.because],
        fixes=_fixes(failing, places),
    )


def _fixes(failing: Sequence[Verdict], places: Sequence[Place]) -> list[str]:
    """Name what ends it: that of the lines first, then that of the metrics."""
    causes = [cause for place in places[:MOST_PLACES_SHOWN] for cause in place]
    remedies = (remedy_of(finding) for finding in causes)
    fixes = [remedy.do for remedy in remedies if remedy is not None]
    metrics = {verdict.metric for verdict in failing}
    fixes += [fix for metric, fix in METRIC_REMEDIES.items() if metric in metrics]
    return [fix for fix in dict.fromkeys(fixes) if fix != NONE_KNOWN] or fixes[:1]


def _sentences(place: Place) -> Collection[str]:
    said = [explained(finding) for finding in place]
    inside = [f"inside {short(f.innermost)}" for f in place if f.innermost]
    return dict.fromkeys((*said, *inside))


def source_rows(place: Place, lines: SourceLines) -> Iterator[SourceRow]:
    """Yield the line with those around it, and mark what it is about."""
    at, text = place[0].location, place[0].source
    if at is None or not text:
        return
    now = lines.get((at.file, at.line), "")
    # Where the file was changed since, its lines around this one mislead.
    around = AROUND if now.strip() == text else 0
    numbers = range(at.line - around, at.line + around + 1)
    found = {n: lines.get((at.file, n), "") if around else text for n in numbers}
    shown = {n: " ".join(line.split("\n")) for n, line in found.items() if line}
    width = len(str(at.line + AROUND))
    texts = dedent("\n".join(shown.values())).split("\n")
    for number, line in zip(shown, texts, strict=True):
        about = place if number == at.line else None
        yield _row(f"{number:>{width}}", line, about)


SourceRow = tuple[str, str | None, str]
"""A line of source in three parts, of which the one in the middle is marked, if any."""


def _row(number: str, line: str, place: Place | None) -> SourceRow:
    if place is None:
        return f"{number}  {line}\n", None, ""
    start, length = spot_of(remedy_of(place[0]), line.strip())
    start += len(line) - len(line.lstrip())
    end = start + length
    return f"{number}  {line[:start]}", line[start:end], f"{line[end:]}\n"


# All causes, each with its place.

MOST_PAGE_FINDINGS: Final = 12
"""Findings of a group that are listed."""

FINDING_GROUPS: Final[Mapping[str, tuple[FindingKind, ...]]] = {
    "Where the time is spent": (FindingKind.TIME,),
    "Where the GPU has nothing to do": (FindingKind.IDLE,),
    "Where the CPU waits": (FindingKind.SYNC, FindingKind.COPY),
    "Where it may wait: only a GPU can show": (FindingKind.INCONCLUSIVE,),
    "What goes between CPU and GPU": (FindingKind.TRANSFER,),
    "What goes between ranks": (FindingKind.COLLECTIVE,),
    "What torch.compile does with the code": (
        FindingKind.BREAK,
        FindingKind.RECOMPILE,
    ),
    "What takes the memory": (
        FindingKind.LEFT,
        FindingKind.GARBAGE,
        FindingKind.PEAK,
        FindingKind.MEMORY,
    ),
    "What runs more operations than before": (FindingKind.WORK,),
}


Item = tuple[str, str, str, Sequence[str]]
"""The place of a finding, its cause, the line, and what else is known."""


def findings_list(
    findings: Sequence[Finding], lines: SourceLines, shown: Collection[str] = ()
) -> Iterator[tuple[str, Sequence[Item], int]]:
    """Yield a title for each group, its worst findings, and how many more there are.

    The source of places that were *shown* above is not printed again.
    """
    printed = set(shown)
    for name, kinds in FINDING_GROUPS.items():
        group = sorted((f for f in findings if f.kind in kinds), key=badness)
        if group:
            items = [_item(f, lines, printed) for f in group[:MOST_PAGE_FINDINGS]]
            yield name, items, len(group) - len(items)


def _item(finding: Finding, lines: SourceLines, printed: set[str]) -> Item:
    name = place_of(finding)
    line = "" if name in printed else line_of(finding, lines)
    printed.add(name)
    more = [f"inside {short(finding.innermost)}"] if finding.innermost else []
    more += [finding.reason] if finding.reason else []
    more += [f"allowed: {finding.allowed}"] if finding.allowed is not None else []
    return name, cause(finding), line, more


def words_of(section: Section) -> str:
    """Return the words by which *section* is found, besides those of its line."""
    findings = section.verdict.findings if section.verdict else ()
    known = (f"{place_of(f)} {cause(f)} {f.source}" for f in findings)
    return " ".join(dict.fromkeys(known))
