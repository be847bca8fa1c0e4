"""Sentences in 80 columns, words and hyphens whole."""

from __future__ import annotations

import re
import textwrap
from typing import Final


WIDTH: Final = 80
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=%|MHz\b|min\b|ms\b|s\b)")
_TIED: Final = "\N{NO-BREAK SPACE}"


def wrapped(text: str, *, first: str = "", rest: str = "    ") -> tuple[str, ...]:
    """Break *text* as ``broken`` does, and no number apart from its unit."""
    lines = broken(_BEFORE_UNIT.sub(_TIED, text), first=first, rest=rest)
    return tuple(line.replace(_TIED, " ") for line in lines)


def broken(text: str, *, first: str = "", rest: str = "") -> tuple[str, ...]:
    """Break *text* into lines that begin with *first* and then *rest*."""
    return tuple(
        textwrap.wrap(
            text,
            width=WIDTH,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
