"""Ctrl-C while another process works."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


SIGNALLED: Final = 128
"""Added by a shell to the number of the signal that ended a process."""


@contextmanager
def interrupts_left_to_child() -> Iterator[None]:
    """Outlive Ctrl-C, so that the child, which gets it too, can put things in order."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def shell_code(returncode: int) -> int:
    """Exit code that a shell gives for *returncode* of ``subprocess``."""
    return returncode if returncode >= 0 else SIGNALLED - returncode
