"""Sentences in 80 columns, no percentage apart from its sign."""

from __future__ import annotations

import textwrap
from typing import Final


WIDTH: Final = 80
_TIED: Final = "\N{NO-BREAK SPACE}%"


def wrapped(text: str, *, first: str = "", rest: str = "    ") -> tuple[str, ...]:
    """Break *text* into lines that begin with *first* and then *rest*."""
    lines = textwrap.wrap(
        text.replace(" %", _TIED),
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return tuple(line.replace(_TIED, " %") for line in lines)
