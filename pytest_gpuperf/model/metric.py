"""What a metric is: its unit, kind, direction, and the phase that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class UnitScale(NamedTuple):
    """One of the sizes in which a unit is written."""

    symbol: str
    size: float
    least: float
    """How many of it a value must have to be written in it."""


class Unit(Enum):
    """Unit of a metric's values, which are per step from birth, but for ratios and shares."""

    MS = "ms"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"
    PERCENT = "percent"
    PER_SECOND = "per second"

    @property
    def noun(self) -> str:
        """What a value of it is called."""
        return _FORMS[self].noun

    @property
    def in_words(self) -> str:
        """What a budget in it limits."""
        return _FORMS[self].in_words

    @property
    def suffix(self) -> str:
        """What follows a number in the unit of budgets."""
        return _FORMS[self].suffix

    @property
    def scales(self) -> tuple[UnitScale, ...]:
        """Sizes in which a report writes it, largest first; none if it has only one."""
        return _FORMS[self].scales

    @property
    def is_tolerable(self) -> bool:
        """Whether a baseline has values of it, from which a tolerance can be taken."""
        return _FORMS[self].is_tolerable


class _Form(NamedTuple):
    noun: str
    in_words: str
    suffix: str = ""
    scales: tuple[UnitScale, ...] = ()
    is_tolerable: bool = True


_FORMS: Final = {
    Unit.MS: _Form(
        noun="time",
        in_words="milliseconds per step",
        suffix=" ms",
        scales=(
            UnitScale("s", 1e3, 10.0),
            UnitScale("ms", 1.0, 1.0),
            UnitScale("us", 1e-3, 1.0),
            UnitScale("ns", 1e-6, 1.0),
        ),
    ),
    Unit.BYTES: _Form(
        noun="size",
        in_words="MiB (2^20 bytes)",
        suffix=" MiB",
        scales=(
            UnitScale("GiB", 2**30, 1.0),
            UnitScale("MiB", 2**20, 1.0),
            UnitScale("KiB", 2**10, 1.0),
        ),
    ),
    Unit.COUNT: _Form(noun="count", in_words="count per step"),
    Unit.PER_SECOND: _Form(
        noun="rate",
        in_words="per second",
        suffix=" /s",
        is_tolerable=False,
    ),
    # A speedup, a skew and a share are not compared with a baseline, nor is a rate.
    Unit.RATIO: _Form(
        noun="ratio", in_words="times as fast, at least", suffix="x", is_tolerable=False
    ),
    Unit.PERCENT: _Form(
        noun="share", in_words="percent", suffix=" %", is_tolerable=False
    ),
}


def counted(number: int, noun: str) -> str:
    """Write *number* with its *noun*: ``1 copy``, ``2 copies``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("ss"):
        return f"{number} {noun}es"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {plural}"


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
