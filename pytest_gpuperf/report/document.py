"""What a report says, as blocks: built once, and walked by a terminal, by Markdown and by HTML."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ..model.finding import Finding
from ..visible import visible
from .remedies import remedy_of, spot_of


USUAL_WIDTH: Final = 80
"""Columns where there is no terminal, as in the log of a CI."""

LEAST_WIDTH, MOST_WIDTH = 60, 120
"""Nobody reads sentences well that are longer."""

_BEFORE_UNIT: Final = re.compile(
    r"(?<=\d) (?=%|MHz\b|min\b|ms\b|us\b|s\b|[KMG]iB\b|B\b)"
)
_TIED: Final = "\N{NO-BREAK SPACE}"


def text_width() -> int:
    """Return how many columns a text may take: those of the terminal, or of COLUMNS."""
    columns = shutil.get_terminal_size((USUAL_WIDTH, 0)).columns
    return min(max(columns, LEAST_WIDTH), MOST_WIDTH)


def wrapped(text: str, *, first: str = "", rest: str = "    ") -> tuple[str, ...]:
    """Break *text* into lines that begin with *first* and then *rest*.

    No number is broken apart from its unit.
    """
    lines = textwrap.wrap(
        # It breaks at blanks only, so a no-break space ties a number to its unit.
        _BEFORE_UNIT.sub(_TIED, visible(text)),
        width=text_width(),
        initial_indent=first,
        subsequent_indent=rest,
        # Node ids and commands are copied from the terminal, so they stay whole.
        break_long_words=False,
        break_on_hyphens=False,
    )
    return tuple(line.replace(_TIED, " ") for line in lines)


# Lines of a failure: a label, and a text that is wrapped or left uncut.

REASON_INDENT: Final = 11


def labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* next to its label; no line where there is no text."""
    return wrapped(
        text, first=f"  {label}".ljust(REASON_INDENT), rest=" " * REASON_INDENT
    )


def uncut(label: str, text: str) -> tuple[str, ...]:
    """Put *text* next to its label as it is, to be copied."""
    return (f"  {label}".ljust(REASON_INDENT) + visible(text),)


# Colours of a failure, an audit and a prediction: what a line is shows in its form.

_LINE_FORMS: Final = tuple(
    map(
        re.compile,
        (
            r"(?P<bad>[A-Z][A-Z ]+[A-Z](?: \w+)*)(?P<rest>(?::.*)?)",
            r"(?P<mark>  --> )(?P<place>.*)",
            r"(?P<gutter> *\d* \| )(?P<space> *)(?P<caret>\^+)(?P<rest>.*)",
            r"(?P<gutter> *\d* \| )(?P<source>.*)",
            (
                rf"  (?=[a-z? ]{{{REASON_INDENT - 3}}} \S)(?P<label>[a-z]+(?: [a-z]+)?\??)"
                r"(?P<rest> +.*)"
            ),
        ),
    )
)
"""What a line is, and its parts."""

_COLOURS: Final[Mapping[str, Mapping[str, bool]]] = {
    "bad": {"red": True, "bold": True},
    "mark": {"blue": True, "bold": True},
    "place": {"bold": True},
    "gutter": {"blue": True},
    "caret": {"red": True, "bold": True},
    "label": {"cyan": True},
}

_ANSI: Final = {"bold": "1", "red": "31", "blue": "34", "cyan": "36"}
"""The codes of ECMA-48, SGR."""


def painted(line: str) -> Iterator[tuple[str, Mapping[str, bool]]]:
    """Yield the parts of a *line* with the colour of each, by the names of pytest."""
    found = next(filter(None, (form.fullmatch(line) for form in _LINE_FORMS)), None)
    if found is None:
        yield line, {}
        return
    end = 0
    for name, text in found.groupdict().items():
        start = found.start(name)
        # What no group has, such as the indent of a label.
        yield line[end:start], {}
        yield text, _COLOURS.get(name, {})
        end = found.end(name)


def coloured(text: str) -> str:
    """Return *text* with the codes that colour its lines on a terminal."""
    return "".join(map(_ansi_line, text.splitlines(keepends=True)))


def _ansi_line(line: str) -> str:
    text = line.rstrip("\n")
    return "".join(map(_ansi, painted(text))) + line[len(text) :]


def _ansi(part: tuple[str, Mapping[str, bool]]) -> str:
    text, markup = part
    if not (text and markup):
        return text
    return f"\x1b[{';'.join(_ANSI[name] for name in markup)}m{text}\x1b[0m"


# Tables for a terminal: columns under each other.


def align(rows: Sequence[Sequence[str]], left: frozenset[int]) -> tuple[str, ...]:
    """Pad cells to their column's width: flush right but for the *left* columns.

    The last column is never padded. All *rows* have the same number of cells. Their
    texts may be names, so invisible characters, such as the end of a line, are made
    visible.
    """
    rows = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def pad(column: int, cell: str) -> str:
        if column == len(widths) - 1:
            return cell
        return (
            cell.ljust(widths[column]) if column in left else cell.rjust(widths[column])
        )

    return tuple("  ".join(pad(*cell) for cell in enumerate(row)) for row in rows)


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
