"""What torch.compile takes when training starts."""

from __future__ import annotations

from typing import Final

from .metric import MeasuringPhase
from .metric import Metric
from .metric import MetricKind
from .metric import OfRanks
from .units import Unit


COMPILE_S: Final = Metric(
    name="compile_s",
    unit=Unit.SECONDS,
    kind=MetricKind.NOISY,
    summary="time that torch.compile takes in the first steps, with empty caches, read where a budget asks for it",
    budget="compile_s",
    gated=True,
    tolerance=0.1,
    floor=0.5,
    phase=MeasuringPhase.COMPILING,
    of_ranks=OfRanks.FIRST,
    scatter=0.05,
)
COMPILE_WARM_S: Final = Metric(
    name="compile_warm_s",
    unit=Unit.SECONDS,
    kind=MetricKind.NOISY,
    summary="the same in another process, with the caches that the first one filled",
    budget="compile_warm_s",
    gated=True,
    tolerance=0.1,
    floor=0.2,
    phase=MeasuringPhase.COMPILING,
    of_ranks=OfRanks.FIRST,
    scatter=0.05,
)

COMPILE_TIMES: Final[tuple[Metric, ...]] = (COMPILE_S, COMPILE_WARM_S)
"""What is read only if it is asked for: with empty caches a start takes its time."""
