"""What a metric is: its unit, kind, direction, and the phase that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from .units import Unit


MIB: Final = 2**20


class MetricKind(Enum):
    """How a metric varies when nothing changes."""

    NOISY = "noisy"
    EXACT = "exact"


class MeasuringPhase(Enum):
    """The part of a measurement that reads a metric."""

    ROUNDS = "rounds"
    ISOLATED = "isolated steps"
    MEMORY = "memory"
    TRACE = "trace"
    COMPILER = "compiler"
    FURTHER = "further steps"
    RANKS = "ranks"


class OfRanks(Enum):
    """What a step has of a metric if several ranks measured it."""

    LARGEST = "largest"
    FIRST = "first"
    """That of rank 0: ranks are timed together."""


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
    against itself it is exact. ``beneath`` names the metric of what is part of it and
    not the step's own: the tolerance is taken of the rest. ``phase`` reads it,
    ``of_ranks`` combines what several ranks read. ``scatter`` is the standard deviation
    of runs, as a ratio, that is assumed until stored runs show theirs; 0 assumes that of
    the device's step times.
    """

    name: str
    unit: Unit
    summary: str
    kind: MetricKind = MetricKind.EXACT
    budget: str | None = None
    gated: bool = False
    tolerance: float = 0.0
    floor: float = 0.0
    direction: Direction = Direction.LOWER
    can_be_zero: bool = False
    error: float = 0.0
    beneath: str = ""
    phase: MeasuringPhase = MeasuringPhase.TRACE
    of_ranks: OfRanks = OfRanks.LARGEST
    scatter: float = 0.0
