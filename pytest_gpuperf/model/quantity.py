"""What kinds of quantity there are."""

from __future__ import annotations

from enum import Enum


class Unit(Enum):
    """Unit of a metric's values, which are per step from birth."""

    MS = "ms"
    BYTES = "bytes"
    COUNT = "count"


class Kind(Enum):
    """How a metric varies when nothing changes."""

    NOISY = "noisy"
    EXACT = "exact"


class Direction(Enum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"
