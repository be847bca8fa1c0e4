"""A document as HTML: its blocks, each with the lines around what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from textwrap import dedent

from ..document import Block, Place
from .contents import AROUND, Markup, rendered


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
