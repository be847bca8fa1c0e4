"""Sentences as wide as the terminal, words and hyphens whole."""

from __future__ import annotations

import re
import shutil
import textwrap
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
    """Break *text* as ``broken`` does, and no number apart from its unit."""
    # textwrap breaks at blanks only, so a no-break space ties a number to its unit.
    lines = _broken(_BEFORE_UNIT.sub(_TIED, visible(text)), first, rest)
    return tuple(line.replace(_TIED, " ") for line in lines)


def broken(text: str, *, first: str = "", rest: str = "") -> tuple[str, ...]:
    """Break *text* into lines that begin with *first* and then *rest*."""
    return _broken(visible(text), first, rest)


def _broken(text: str, first: str, rest: str) -> tuple[str, ...]:
    return tuple(
        textwrap.wrap(
            text,
            width=text_width(),
            initial_indent=first,
            subsequent_indent=rest,
            # Node ids and commands are copied from the terminal, so they stay whole.
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


# Lines of a failure: a label, and a text that is wrapped or left uncut.

REASON_INDENT: Final = 11


def labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* beside its label; no line where there is no text."""
    return broken(
        text, first=f"  {label}".ljust(REASON_INDENT), rest=" " * REASON_INDENT
    )


def uncut(label: str, text: str) -> tuple[str, ...]:
    """Put *text* beside its label as it is, to be copied."""
    return (f"  {label}".ljust(REASON_INDENT) + visible(text),)
