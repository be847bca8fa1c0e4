"""Knows when the last process of a group has ended, without asking again and again."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Final


PATIENCE_SECONDS: Final = 600.0


def hear_ctrl_c() -> None:
    """Undo what a shell does to a background job, where tests may well run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ProcessFifo:
    """A FIFO that processes hold open: its end is the death of the last of them."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.fifo = str(path)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def has_heard(self) -> bool:
        """Whether a process has opened the FIFO and said so."""
        return self._read(PATIENCE_SECONDS) == b"!"

    def all_ended(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether every process that opened the FIFO ends within *seconds*."""
        while self._read(seconds):
            pass
        return True

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._reader], [], [], seconds)
        assert ready, f"nothing was said and nobody ended within {seconds} s"
        return os.read(self._reader, 1)

    def close(self) -> None:
        os.close(self._reader)
