"""HTML put together so that no text can become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final


EMPTY_TAGS: Final = frozenset({"input", "meta", "path", "rect"})
"""Elements without content."""

UNCLOSED: Final = frozenset({"dd", "dt", "li", "tbody", "td", "th", "thead", "tr"})
"""Elements with an optional end tag: a page has tens of thousands of them."""

_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_INVISIBLE: Final = (*range(0x7F, 0xA0), *_BIDI, 0x2028, 0x2029, 0xFFFE, 0xFFFF)

VISIBLE_CHARS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*_INVISIBLE, *range(0xD800, 0xE000))},
}
"""Replaces characters that are no text: those that control a terminal, turn the
direction of writing, end a line of a script, or cannot be written as UTF-8."""


class Markup(str):
    """HTML that goes into the page unchanged."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Escape *text* so that it reads as it is; return markup unchanged."""
    # The type says what is escaped already, so that nothing is escaped twice or never.
    if isinstance(text, Markup):
        return text
    shown = text if text.isprintable() else text.translate(VISIBLE_CHARS)
    return Markup(escape(shown))


def joined(children: Iterable[str]) -> Markup:
    """Put *children* behind each other: markup as it is, all other text escaped."""
    return Markup("".join(map(escaped, children)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return the element *name*, without the attributes that are ``None``.

    ``class_`` gives ``class``, ``data_at`` gives ``data-at``.
    """
    start = name + "".join(
        f' {_attribute(key)}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY_TAGS:
        return Markup(f"<{start}/>")
    end = "" if name in UNCLOSED else f"</{name}>"
    return Markup(f"<{start}>{joined(children)}{end}")


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
