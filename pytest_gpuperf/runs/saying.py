"""What measuring processes say while they work, for whoever wants to hear it.

All of them write lines into one pipe that never makes them wait: what does not fit is
lost. Where nobody listens nothing is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final


LONGEST: Final = 512
"""Bytes that POSIX writes into a pipe in one piece: lines of two processes never mix."""

SELDOM_SECONDS: Final = 1.0
"""Least time between two things that may be left unsaid: short steps say none, and what
listens wakes up beside few of the timed rounds of others."""

_mouths: list[int] = []
_said_at: list[float] = []


class Ear:
    """The end that listens; *hear* gets the texts of a line, *mouth* is the end to speak into."""

    def __init__(self, hear: Callable[..., None]) -> None:
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
            self._hear(*json.loads(line))
        return bool(received)

    def close(self) -> None:
        """Listen no more."""
        os.close(self._end)


def speak_into(mouth: int) -> None:
    """Let this process and those it forks say things, but no program that they start."""
    os.set_blocking(mouth, False)
    os.set_inheritable(mouth, False)  # noqa: FBT003, it takes no keyword
    _mouths[:] = [mouth]


def say(*texts: str) -> None:
    """Tell *texts* to whoever listens, in microseconds."""
    line = json.dumps(texts).encode() + b"\n"
    _said_at[:] = [time.monotonic()]
    for mouth in _mouths if len(line) <= LONGEST else ():
        with suppress(OSError):
            os.write(mouth, line)


def say_seldom(*texts: str) -> None:
    """Tell *texts*, unless something was said in the last ``SELDOM_SECONDS``."""
    if not _said_at or time.monotonic() - _said_at[0] >= SELDOM_SECONDS:
        say(*texts)
