"""The quantity of a loop that takes its batches from a loader."""

from __future__ import annotations

from typing import Final

from .quantity import Kind
from .quantity import Metric
from .quantity import Unit


LOADER_WAIT: Final = Metric(
    name="loader_wait_pct",
    unit=Unit.PERCENT,
    kind=Kind.NOISY,
    summary="share of a loop's wall time that the host spends in next() of its loader (gpuperf.loader)",
    budget="loader_wait_pct",
)
