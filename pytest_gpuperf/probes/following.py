"""Who is told how far a measurement is: between steps, never while one is timed."""

from __future__ import annotations

from collections.abc import Callable


Follow = Callable[[str], object]
"""Takes what is being done, as ``round 12/20``; it returns in microseconds."""


def nobody(doing: str) -> None:
    """Follow nothing."""
    del doing
