"""The quantities that only a profiler's trace of a GPU can show."""

from __future__ import annotations

from typing import Final

from .quantity import Direction
from .quantity import Kind
from .quantity import Metric
from .quantity import Unit


BUSY: Final = Metric(
    name="busy_pct",
    unit=Unit.PERCENT,
    kind=Kind.NOISY,
    summary="share of the profiled steps in which a kernel runs on the GPU",
    budget="busy_pct",
    direction=Direction.HIGHER,
)
