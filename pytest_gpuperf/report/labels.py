"""Lines of a failure: a label, and beside it a text that wraps or stands uncut."""

from __future__ import annotations

from typing import Final

from .wrapping import broken


INDENT: Final = 11


def labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* beside its label; no line where there is no text."""
    return broken(text, first=f"  {label}".ljust(INDENT), rest=" " * INDENT)


def uncut(label: str, text: str) -> tuple[str, ...]:
    """Put *text* beside its label as it is, to be copied."""
    return (f"  {label}".ljust(INDENT) + text,)


def headline(text: str) -> tuple[str, ...]:
    """Wrap *text*, which begins at the margin."""
    return broken(text, first="", rest=" " * INDENT)
