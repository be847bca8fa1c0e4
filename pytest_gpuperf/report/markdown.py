"""Markdown out of text that nobody can trust: names of tests, messages of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Sequence
from html import escape
from typing import Final


LONGEST: Final = 300
"""Characters of a name that are shown in a table."""

_TAIL: Final = 60
_JOINER: Final = "\N{ZERO WIDTH JOINER}"

_SPECIAL: Final = re.compile(
    r"[|`*~\[\\@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
"""What means something to GitHub's Markdown in the middle of a line, also in HTML."""


def visible(text: str) -> str:
    """Write characters that cannot be seen, or change what is seen, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char == _JOINER
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def code(text: str, longest: int = LONGEST) -> str:
    """*text* in one line as HTML that Markdown leaves alone, its middle cut if too long."""
    shown = visible(text)
    if len(shown) > longest:
        shown = f"{shown[: longest - _TAIL]}...{shown[-_TAIL:]}"
    marked = _SPECIAL.sub(lambda found: f"\0{ord(found[0])};", shown)
    return f"<code>{escape(marked).replace(chr(0), '&#')}</code>"


def preformatted(lines: Iterable[str]) -> str:
    """*lines* as they are, in a block that Markdown does not look into."""
    text = "\n".join(map(visible, lines))
    return f"<pre>{escape(text)}</pre>"


def row(cells: Sequence[str]) -> str:
    """One line of a table; *cells* are Markdown already."""
    return f"| {' | '.join(cells)} |"


def size(text: str) -> int:
    """Bytes of *text* and the end of its line."""
    return len(text.encode("utf-8", "replace")) + 1


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return the first of *lines* that fit into so many bytes together."""
    kept: list[str] = []
    for line in lines:
        room -= size(line)
        if room < 0:
            break
        kept.append(line)
    return kept
