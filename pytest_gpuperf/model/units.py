"""The units of metrics: what a value is called, and how it is written."""

from __future__ import annotations

from enum import Enum
from typing import Final
from typing import NamedTuple


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
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {plural}"
