"""What measuring processes say while they work, for whoever wants to hear it.

All of them write lines into one pipe that never makes them wait: what does not fit is
lost. Where nobody listens nothing is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final


LONGEST: Final = 512
"""Bytes that POSIX writes into a pipe in one piece: lines of two processes never mix."""

_mouths: list[int] = []


class Ear:
    """The end that listens; *hear* gets each text, *mouth* is the end to speak into."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._end, self.mouth = os.pipe()
        self._buffered = b""

    def fileno(self) -> int:
        """Return what ``select`` waits for."""
        return self._end

    def listen(self) -> bool:
        """Hear what there is; false where nobody will ever speak again."""
        received = os.read(self._end, 65536)
        *lines, self._buffered = (self._buffered + received).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return bool(received)

    def close(self) -> None:
        """Listen no more."""
        os.close(self._end)


def speak_into(mouth: int) -> None:
    """Let this process and those it forks say things, but no program that they start."""
    os.set_blocking(mouth, False)
    os.set_inheritable(mouth, False)  # noqa: FBT003, it takes no keyword
    _mouths[:] = [mouth]


def say(text: str) -> None:
    """Tell *text* to whoever listens, in microseconds."""
    line = json.dumps(text).encode() + b"\n"
    for mouth in _mouths if len(line) <= LONGEST else ():
        with suppress(OSError):
            os.write(mouth, line)
