"""One line of a terminal that is written over and over, and erased at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final


LEAST_SECONDS: Final = 0.25
"""Between two changes of the line: nobody reads more of them."""


class LiveLine:
    """Shows the newest text; *write* takes it to the terminal at once."""

    def __init__(
        self,
        write: Callable[[str], object],
        width: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._width = width
        self._now = now
        self._shown = ""
        self._next = -inf

    def show(self, text: str) -> None:
        """Put *text* in the place of the last one, unless that is the same or too new."""
        now = self._now()
        shown = "".join(map(_narrow, text))[: self._width() - 1]
        if now < self._next or shown == self._shown:
            return
        self._next = now + LEAST_SECONDS
        self._write(f"\r{shown.ljust(len(self._shown))}")
        self._shown = shown

    def erase(self) -> None:
        """Leave an empty line for others to write on; the next text may come at once."""
        if self._shown:
            self._write(f"\r{' ' * len(self._shown)}\r")
        self._shown, self._next = "", -inf


def _narrow(character: str) -> str:
    """Keep what takes one column of every terminal, and moves nothing."""
    return character if character.isascii() and character.isprintable() else "?"
