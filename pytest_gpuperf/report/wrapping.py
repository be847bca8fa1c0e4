"""Lines on a terminal: as wide as it is, words and hyphens whole, in its colours."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ..visible import visible


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
