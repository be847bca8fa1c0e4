"""Says on standard error what a command is at, if that takes more than seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Final


TERMINAL_SECONDS: Final = 2.0
"""Until the line appears on a terminal, and between two changes of it."""

FIRST_LOG_SECONDS: Final = 10.0
"""Until the first line of a log, whose lines stay."""

LOG_SECONDS: Final = 30.0
"""Between two lines of a log."""


class ElapsedLine:
    """Writes what is going on, and for how long: over and over, or as lines of a log."""

    def __init__(
        self,
        doing: Callable[[], str],
        write: Callable[[str], object],
        *,
        is_terminal: bool,
    ) -> None:
        self._doing = doing
        self._write = write
        self._is_terminal = is_terminal
        self._columns = 0

    def due_seconds(self) -> Iterator[float]:
        """Yield the time until the line is due, and then between two of them."""
        yield TERMINAL_SECONDS if self._is_terminal else FIRST_LOG_SECONDS
        yield from repeat(TERMINAL_SECONDS if self._is_terminal else LOG_SECONDS)

    def show(self, seconds: float) -> None:
        """Say that it has taken so many *seconds*."""
        text = f"gpuperf: {self._doing()}, {seconds:.0f} s"
        over = text.ljust(self._columns)
        self._columns = len(over)
        # What the program itself prints begins at the left, over this line.
        self._write(f"{over}\r" if self._is_terminal else f"{text}\n")

    def erase(self) -> None:
        """Leave an empty line of a terminal for others to write on."""
        if self._is_terminal and self._columns:
            self._write(f"{' ' * self._columns}\r")


@contextmanager
def elapsed_shown(
    line: ElapsedLine,
    is_over: threading.Event,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show *line* whenever it is due, while what is inside runs; *is_over* ends that."""
    start = now()

    def follow() -> None:
        due = line.due_seconds()
        while not is_over.wait(next(due)):
            line.show(now() - start)

    thread = threading.Thread(target=follow, name="gpuperf-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        line.erase()


def standard_error(doing: Callable[[], str]) -> ElapsedLine:
    """Return the line of a command on its standard error."""

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    return ElapsedLine(doing, write, is_terminal=sys.stderr.isatty())
