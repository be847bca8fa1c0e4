"""How quick a step must be for a run to end before it has all its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from math import exp
from math import log1p
from typing import Final

from ..model.baseline import Entry
from ..model.budget import Budget
from ..model.budget import Tolerance
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.metrics import STEP_MS
from ..model.run import StoredStep
from .budget import ceiling
from .budget import resolve
from .calls import references_of
from .verdict import step_limits
from .verdict import tolerated


ENOUGH_RATIO: Final = 1.01
"""A first run ends early up to this multiple of the stored time, even if more would pass.

Half the rounds read 0.4 % too much on average, and a quarter 1.2 %, as low quantiles do
of fewer samples. A step that becomes slower in later rounds alone may pass as quick as it
began, and a low quantile of all rounds would show little of it.
"""

CONFIRMED_RATIO: Final = 1.0
"""The same of a run that confirms: it makes up for a first run that was too slow."""

ROUNDING: Final = log1p(1e-4)
"""What a time may become longer by when it is written with four digits, in log time."""


def stored_steps(
    entries: Mapping[str, Entry], kind: DeviceKind
) -> dict[str, StoredStep]:
    """Return by call what its stored runs say of the time of a step."""
    return {
        key: StoredStep(
            typical_ms=times.typical,
            fast_ms=times.typical * exp(times.fast),
            margin=times.margin(1),
        )
        for key, times in references_of(entries, kind).items()
    }


def news_ms(stored: StoredStep, tolerance: Tolerance) -> float:
    """Return the milliseconds below which a step is faster than it was.

    What may become its baseline has all its rounds.
    """
    return stored.fast_ms / (1 + tolerated(STEP_MS, tolerance))


def enough_ms(
    stored: StoredStep,
    budgets: Sequence[Budget],
    hardware: Hardware,
    tolerance: Tolerance,
    *,
    confirms: bool,
) -> float:
    """Return the milliseconds at which a step is quick enough for its run to end.

    With so little it passes, whatever the rounds to come would show: more of them would
    only lower what is read. It is below every ceiling that *budgets* set on *hardware*.
    """
    limits = step_limits(stored.typical_ms, tolerance)
    passing = stored.typical_ms * exp(limits.noticed - stored.margin - ROUNDING)
    quick = stored.typical_ms * (CONFIRMED_RATIO if confirms else ENOUGH_RATIO)
    limit = resolve(budgets, hardware).limits.get(str(STEP_MS.budget))
    if limit is None:
        return min(passing, quick)
    below = ceiling(STEP_MS, limit) * exp(-stored.margin - ROUNDING)
    return min(passing, quick, below)
