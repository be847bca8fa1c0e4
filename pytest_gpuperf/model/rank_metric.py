"""The quantities of a step that runs on several ranks at once."""

from __future__ import annotations

from typing import Final

from .quantity import Kind
from .quantity import Metric
from .quantity import Unit


RANK_SKEW: Final = Metric(
    name="rank_skew",
    unit=Unit.RATIO,
    kind=Kind.NOISY,
    summary="median time of a step on the slowest rank, divided by that on the fastest",
    budget="skew_pct",
)
RANK_PEAK: Final = Metric(
    name="rank_peak_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="peak memory of a step on the rank that needs most",
    budget="rank_mem_mb",
)
COLLECTIVES: Final = Metric(
    name="collectives",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="collective operations of torch.distributed that a rank starts in a step",
    budget="collectives",
    gated=True,
    can_be_zero=True,
)
COLLECTIVE_BYTES: Final = Metric(
    name="collective_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes of the tensors that these operations join, share out or send",
    gated=True,
    can_be_zero=True,
)

RANKED: Final[tuple[Metric, ...]] = (
    RANK_SKEW,
    RANK_PEAK,
    COLLECTIVES,
    COLLECTIVE_BYTES,
)
"""What a step on one rank has none of."""
