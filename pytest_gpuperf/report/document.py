"""What a report says, as blocks: built once, and walked by a terminal, by Markdown and by HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ..model.finding import Finding
from ..visible import visible
from .remedies import remedy_of, spot_of
from .wrapping import REASON_INDENT, align, labelled, text_width, uncut, wrapped


ARROW: Final = "  --> "
RULE: Final = " | "
GUTTER: Final = 5
"""Columns of a line's number."""

EMPTY_GUTTER: Final = f"{' ' * GUTTER}{RULE}"
"""In front of a sentence below a line of source."""


class Heading(NamedTuple):
    """What happened, or what a part is about: one line that is never broken."""

    text: str


class Text(NamedTuple):
    """A sentence; on a terminal its lines begin with ``first`` and then ``rest``."""

    text: str
    first: str = ""
    rest: str = "    "


class Verbatim(NamedTuple):
    """Lines as they are, such as a command to type."""

    text: str


class Field(NamedTuple):
    """A text next to its label; what is to be copied is left whole."""

    label: str
    text: str
    is_copied: bool = False


class Place(NamedTuple):
    """A line by its name, with its source if *finding* has it, and sentences about it.

    The text is put under the part of the line that it is about: at ``spot``, its beginning
    and its length, or what the remedy looks for. Without a text no part is marked.
    """

    name: str
    finding: Finding
    text: str
    spot: tuple[int, int] | None = None

    @property
    def has_source(self) -> bool:
        return bool(self.finding.source and self.finding.location)

    def marked(self, source: str) -> tuple[int, int]:
        """Return where in *source*, its line, the part begins, and how long it is."""
        if not self.text:
            return 0, 0
        return self.spot or spot_of(remedy_of(self.finding), source)


class Table(NamedTuple):
    """Rows below a header; columns ``left`` are flush left, and no column is empty."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[int] = frozenset()


Block = Heading | Text | Verbatim | Field | Place | Table


def below(text: str) -> Text:
    """Say more about the line of source above."""
    return Text(text, EMPTY_GUTTER, EMPTY_GUTTER)


def typed_next(command: str, does: str) -> Verbatim:
    """Name the command to type next, and say what it does."""
    return Verbatim(f"next: {command}\n      {does}")


def terminal(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Return *blocks* as lines of a terminal, as wide as that is."""
    return tuple(chain.from_iterable(map(_lines, blocks)))


def _lines(block: Block) -> Iterable[str]:
    match block:
        case Heading(text):
            return (text,)
        case Text(text, first, rest):
            return wrapped(text, first=first, rest=rest)
        case Verbatim(text):
            return text.splitlines()
        case Field(label, text, is_copied):
            return uncut(label, text) if is_copied else labelled(label, text)
        case Place():
            return _place_lines(block)
        case Table(header, rows, left):
            return align([header, *rows], left)


def _place_lines(place: Place) -> Iterator[str]:
    if place.has_source:
        yield f"{ARROW}{place.name}"
        yield from source_lines(place)
    else:
        text = ": ".join(filter(None, (place.name, place.text)))
        yield from wrapped(text, first=ARROW, rest=" " * REASON_INDENT)


def source_lines(place: Place) -> Iterator[str]:
    """Show its line under its number, and its text under the part that it is about."""
    finding = place.finding
    number = str(finding.location.line if finding.location else "").rjust(GUTTER)
    room = text_width() - len(EMPTY_GUTTER)
    source, start, length = _shown(finding.source, place.marked(finding.source), room)
    yield f"{number}{RULE}{source}"
    mark = f"{EMPTY_GUTTER}{' ' * start}{'^' * length}"
    if not place.text:
        return
    if len(f"{mark} {place.text}") <= text_width():
        yield f"{mark} {place.text}"
    else:
        yield from (mark, *_lines(below(place.text)))


CUT: Final = "..."


def _shown(source: str, spot: tuple[int, int], room: int) -> tuple[str, int, int]:
    """Return the line, cut to *room* columns, and where and how long its cause is."""
    start, length = spot
    # A cut in front keeps the cause in sight, and what says that more comes behind it.
    end = start + length + len(CUT)
    cut = max(0, min(start, end - room)) if len(source) > room else 0
    start -= cut
    shown = visible(source[cut:][:room])
    if cut and start >= len(CUT):
        shown = CUT + shown[len(CUT) :]
    if len(source) - cut > room and start + length <= room - len(CUT):
        shown = shown[: -len(CUT)] + CUT
    return shown, start, max(1, min(length, len(shown) - start))


def markdown_row(cells: Iterable[str]) -> str:
    """Return a line of a table; *cells* are Markdown already."""
    return f"| {' | '.join(cells)} |"


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of *table*, with numbers flush right; its cells are Markdown already."""
    last = len(table.header) - 1
    is_left = [n in {*table.left, last} for n in range(len(table.header))]
    yield markdown_row(table.header)
    yield markdown_row(":---" if left else "---:" for left in is_left)
    yield from map(markdown_row, table.rows)
