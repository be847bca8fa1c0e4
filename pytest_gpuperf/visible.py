"""Makes text of names, files and exceptions safe for a screen and a CI log.

A name can contain characters that move a terminal's cursor, reverse the order of
letters, look like another line, or form a command to the service that reads the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TextIO


_JOINER: Final = "\N{ZERO WIDTH JOINER}"

_BLANK_LETTERS: Final = (
    "\N{COMBINING GRAPHEME JOINER}\N{HANGUL CHOSEONG FILLER}\N{HANGUL JUNGSEONG FILLER}"
    "\N{KHMER VOWEL INHERENT AQ}\N{KHMER VOWEL INHERENT AA}\N{BRAILLE PATTERN BLANK}"
    "\N{HANGUL FILLER}\N{HALFWIDTH HANGUL FILLER}"
)
"""What Python counts as printable although nothing is seen of it."""

_UNSEEN: Final = re.compile(
    rf"[{_BLANK_LETTERS}\U000e0100-\U000e01ef]"
    rf"|(?<![^\x00-\x7f]){_JOINER}|{_JOINER}(?![^\x00-\x7f])"
)
"""A joiner is left alone inside an emoji or a word that needs it."""

_COMMAND: Final = re.compile(r"^(\s*):(?=:)", re.MULTILINE)
"""GitHub's workflow commands, before which it skips blanks: ``::error::``."""

_BRACKETED: Final = re.compile(r"#(?=#\w*\[)")
"""Its older ones, which it finds anywhere in a line, and those of others: ``##[``."""

_COLON: Final = r"\u003a"
_HASH: Final = r"\u0023"
_MIDDLE: Final = "x"
"""Represents a line that was begun and cannot become a command any more."""


def visible(text: str) -> str:
    """Write characters that cannot be seen, or change what is seen, as escapes.

    A line stays one line.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_escaped, "".join(map(_shown, text)))


def visible_line(text: str) -> str:
    """Make one line of a log of *text*, which no CI service takes for a command."""
    return _harmless(visible(text))


def visible_text(text: str) -> str:
    """Make *text* visible and keep its lines and tabs, as those of a traceback."""
    lines = text.replace("\r\n", "\n").split("\n")
    return _harmless(
        "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)
    )


def printed(lines: Iterable[str]) -> str:
    """Return *lines* as they are printed, each with its end."""
    return "".join(f"{visible_line(line)}\n" for line in lines)


def _shown(char: str) -> str:
    return char if char.isprintable() or char == _JOINER else _escape(char)


def _escaped(found: re.Match[str]) -> str:
    return _escape(found[0])


def _escape(char: str) -> str:
    """Escape as JSON does from DEL on: what is printed may be JSON."""
    if char < "\x7f":
        return char.encode("unicode_escape").decode("ascii")
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def _harmless(text: str) -> str:
    if "::" in text:
        text = _COMMAND.sub(rf"\g<1>{re.escape(_COLON)}", text)
    return _BRACKETED.sub(re.escape(_HASH), text) if "##" in text else text


class VisibleStream:
    """Passes on what is written to *stream*, all of it visible, lines as they are.

    The last safeguard for everything that a command prints: no caller has to think of
    it. Whole lines pass through *paint* last: its codes are not made visible.
    """

    def __init__(
        self, stream: TextIO, paint: Callable[[str], str] | None = None
    ) -> None:
        self._stream = stream
        self._paint = paint
        self._begun = ""

    def write(self, text: str) -> int:
        """Write *text*; a line may come in parts."""
        # `print` writes a line in parts. A command is one only at the beginning of a
        # line, so each part is judged together with what the line began with.
        shown = visible_text(self._begun + text)[len(self._begun) :]
        line = (self._begun + text).rpartition("\n")[2]
        if self._paint and not self._begun and not line:
            shown = self._paint(shown)
        # Blanks are kept: GitHub skips them before a command.
        self._begun = _MIDDLE if line.strip(" \t") else line
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of *lines*."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def shows_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether *stream* is a terminal with colours; see no-color.org, force-color.org."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"
