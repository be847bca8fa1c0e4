"""What an author allows one metric to change, and what holds where nobody says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..model.budget import Tolerance
from ..model.metric import Metric
from .budget import ceiling


DETECT_ABOVE_TOLERANCE: Final = 0.02
"""How far above the tolerance a slowdown must be never to pass in silence."""


def tolerated(metric: Metric, tolerance: Tolerance) -> float:
    """Return the change of *metric*, a ratio, that is ignored."""
    return tolerance.ratios.get(metric.budget or "", metric.tolerance)


def floored(metric: Metric, tolerance: Tolerance) -> Metric:
    """Give *metric* the floor that its author names for it."""
    floor = tolerance.floors.get(metric.budget or "")
    return metric if floor is None else replace(metric, floor=ceiling(metric, floor))


def noticed(metric: Metric, tolerance: Tolerance) -> float:
    """Return the slowdown, a ratio, that never passes in silence."""
    if tolerance.detect is None:
        return tolerated(metric, tolerance) + DETECT_ABOVE_TOLERANCE
    return tolerance.detect
