"""How far a noisy value is off what it may be, in the log of the time it stands for.

A time stands for itself. A loop that waits for its loader a share w of its time, and may
wait w0, takes (1 - w0) / (1 - w) of the time that it may take, for its work is the same:
shares near 0 differ by nothing then, and noise is that of times. What should be high is
off by how many times it is too low.
"""

from __future__ import annotations

from math import log

from ..model.metric import Direction
from ..model.metric import Metric
from ..model.metric import Unit
from .reading import WHOLE
from .spread import ratio


def log_excess(metric: Metric, value: float, limit: float) -> float:
    """Return the excess of *value* over *limit*, or its lack, both in the metric's unit."""
    if metric.direction is Direction.HIGHER:
        return log(limit / value)
    if metric.unit is Unit.PERCENT:
        return log((WHOLE - limit) / (WHOLE - value))
    return log(value / limit)


def value_at(metric: Metric, excess: float, limit: float) -> float:
    """Return the value that stands *excess* above *limit*, or below a floor."""
    if metric.direction is Direction.HIGHER:
        return limit / (1 + ratio(excess))
    if metric.unit is Unit.PERCENT:
        return WHOLE - (WHOLE - limit) / (1 + ratio(excess))
    return limit * (1 + ratio(excess))
