"""Lines of a failure: a label, and beside it a text that wraps or stands uncut."""

from __future__ import annotations

import textwrap
from typing import Final


WIDTH: Final = 80
INDENT: Final = 11


def labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* beside its label; no line where there is no text."""
    return wrapped(text, first=f"  {label}".ljust(INDENT), rest=" " * INDENT)


def uncut(label: str, text: str) -> tuple[str, ...]:
    """Put *text* beside its label as it is, to be copied."""
    return (f"  {label}".ljust(INDENT) + text,)


def headline(text: str) -> tuple[str, ...]:
    """Wrap *text*, which begins at the margin."""
    return wrapped(text, first="", rest=" " * INDENT)


def wrapped(text: str, *, first: str, rest: str) -> tuple[str, ...]:
    """Wrap *text* behind *first*, and its other lines behind *rest*."""
    wrapper = textwrap.TextWrapper(
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return tuple(wrapper.wrap(text))
