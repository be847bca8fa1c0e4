"""What was found in a test: why it failed, with its own lines, and all causes as a list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from textwrap import dedent
from typing import Final

from ...model.finding import Finding, FindingKind
from ..document import Block, Field, Heading, Place
from ..judged_calls import JudgedCall
from ..screen.findings import badness, cause, place_block, place_of, short
from .contents import AROUND, Markup, SourceLines, rendered


LineOf = Callable[[str, int], str]
"""Returns a line of a file, or nothing if it is not known."""

SourceRow = tuple[str, str | None, str]
"""A line of source in three parts, of which the one in the middle is marked, if any."""


def markup_of(blocks: Iterable[Block], line_of: LineOf) -> Markup:
    """Return *blocks* as a part of a page, which shows lines around as *line_of* knows them."""
    shown = [(type(block).__name__, block) for block in blocks if _is_said(block)]
    return rendered("blocks", blocks=shown, rows_of=partial(source_rows, line_of))


def _is_said(block: Block) -> bool:
    """Whether there is anything to say: a label alone is nothing."""
    return bool(getattr(block, "text", True)) or isinstance(block, Place)


def source_rows(line_of: LineOf, place: Place) -> Iterator[SourceRow]:
    """Yield the line of *place* with those around it, and mark what it is about."""
    at, text = place.finding.location, place.finding.source
    if at is None or not text:
        return
    # Where the file was changed since, its lines around this one mislead.
    around = AROUND if line_of(at.file, at.line).strip() == text else 0
    numbers = range(at.line - around, at.line + around + 1)
    found = {n: line_of(at.file, n).rstrip() if around else text for n in numbers}
    shown = {n: " ".join(line.split("\n")) for n, line in found.items() if line}
    width = len(str(at.line + AROUND))
    texts = dedent("\n".join(shown.values())).split("\n")
    for number, line in zip(shown, texts, strict=True):
        about = place if number == at.line else None
        yield _row(f"{number:>{width}}", line, about)


def _row(number: str, line: str, place: Place | None) -> SourceRow:
    if place is None:
        return f"{number}  {line}\n", None, ""
    start, length = place.marked(line.strip())
    start += len(line) - len(line.lstrip())
    end = start + length
    return f"{number}  {line[:start]}", line[start:end], f"{line[end:]}\n"


def with_lines(section: JudgedCall, lines: SourceLines) -> JudgedCall:
    """Return *section* with the text of the line of each finding, where that is known."""
    verdict = section.verdict
    if verdict is None:
        return section
    known = tuple(_with_line(finding, lines) for finding in verdict.findings)
    return replace(section, verdict=replace(verdict, findings=known))


def _with_line(finding: Finding, lines: SourceLines) -> Finding:
    """Return it with its line; with none if only the function is known."""
    at = finding.location
    if at is None or not at.exact:
        return replace(finding, source="")
    # As it ran first: the file may have changed since.
    line = finding.source or lines.get((at.file, at.line), "").strip()
    return replace(finding, source=line)


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


def cause_blocks(
    findings: Sequence[Finding], shown: Collection[str] = ()
) -> Iterator[Block]:
    """List all *findings* by what they are, the worst of each first.

    The source of places that were *shown* above is not printed again.
    """
    printed = {*shown}
    for name, kinds in FINDING_GROUPS.items():
        group = sorted((f for f in findings if f.kind in kinds), key=badness)
        if group:
            yield Heading(f"{name}:")
        for finding in group[:MOST_PAGE_FINDINGS]:
            is_new = place_of(finding) not in printed
            printed.add(place_of(finding))
            yield place_block(finding if is_new else replace(finding, source=""))
            yield Field("inside", str(short(finding.innermost) or ""))
            yield Field("allowed", finding.allowed or "")
        left = len(group) - MOST_PAGE_FINDINGS
        yield Field("", f"and {left} more" if left > 0 else "")


def words_of(section: JudgedCall) -> str:
    """Return the words by which *section* is found, besides those of its line."""
    findings = section.verdict.findings if section.verdict else ()
    known = (f"{place_of(f)} {cause(f)} {f.source}" for f in findings)
    return " ".join(dict.fromkeys(known))
