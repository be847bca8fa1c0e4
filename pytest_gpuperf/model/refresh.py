"""What a refresh may rewrite, what it leaves alone, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Refresh(Enum):
    """Which tests' baselines a refresh replaces."""

    MISSING = "missing"
    IMPROVED = "improved"
    DRIFTED = "drifted"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A test whose baseline was left alone, and one metric that shows why.

    ``stored`` and ``now`` are in the metric's unit. ``noise`` is the standard deviation
    from run to run, a ratio; ``None`` where the metric is exact.
    """

    test: str
    metric: str
    stored: float
    now: float
    noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A metric that got worse since its anchor, beyond ``limit``; all in its unit.

    ``bound`` says what the limit comes from: ``detect 3 %``.
    """

    test: str
    metric: str
    anchor: float
    now: float
    limit: float
    bound: str
