"""What a quantity is: its unit, its kind, its direction, what of it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


MIB: Final = 2**20


class Unit(Enum):
    """Unit of a metric's values, which are per step from birth, but for ratios and shares."""

    MS = "ms"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"
    PERCENT = "percent"


class Kind(Enum):
    """How a metric varies when nothing changes."""

    NOISY = "noisy"
    EXACT = "exact"


class Direction(Enum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A named quantity.

    ``budget`` is the keyword of ``gpuperf.budget`` that limits it. A ``gated``
    metric is judged against the stored baseline; the others are recorded. A change
    counts when it exceeds both ``tolerance`` (a ratio) and ``floor`` (in the unit).
    ``can_be_zero`` says that a step can do without it, so that a budget may say 0.
    ``error`` is how far, as a ratio, a prediction may be off what a GPU would measure;
    against itself it is exact.
    """

    name: str
    unit: Unit
    kind: Kind
    summary: str
    budget: str | None = None
    gated: bool = False
    tolerance: float = 0.0
    floor: float = 0.0
    direction: Direction = Direction.LOWER
    can_be_zero: bool = False
    error: float = 0.0
