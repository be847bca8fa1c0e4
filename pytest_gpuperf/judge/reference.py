"""What the stored runs of one time say, and how much it may move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from math import log1p

from ..model.baseline import FULL_RUNS
from ..model.environment import DeviceKind
from ..model.typical import typical_time
from .prior import Prior
from .spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the stored runs of one time say.

    ``typical`` is where they lie, in the time's unit; ``slow`` and ``fast`` are the
    second slowest and second fastest against it, the very slowest and fastest below
    8 runs.
    """

    runs: int
    typical: float
    slow: float
    fast: float
    spread: Spread

    @classmethod
    def of(
        cls, values: Sequence[float], kind: DeviceKind, prior: Prior | None
    ) -> Reference:
        """Derive it from *values*, ascending and positive, at least one."""
        typical = typical_time(values)
        logs = [log(value / typical) for value in values]
        place = 1 if len(values) >= FULL_RUNS else 0
        return cls(
            runs=len(values),
            typical=typical,
            slow=logs[-1 - place],
            fast=logs[place],
            spread=Spread.of(logs, prior) or Spread.assumed(kind),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The changes that are ignored and that never pass in silence, as ratios.

    ``floored`` says that the absolute floor exceeds the relative tolerance.
    """

    tolerance: float
    detect: float
    floored: bool

    @classmethod
    def of(
        cls, typical: float, *, tolerance: float, detect: float, floor: float
    ) -> Limits:
        """Let the floor, in the unit of *typical*, widen a tolerance below it."""
        if floor <= tolerance * typical:
            return cls(
                tolerance=tolerance, detect=max(tolerance, detect), floored=False
            )
        gap = max(0.0, detect - tolerance)
        wide = floor / typical
        return cls(tolerance=wide, detect=wide + gap, floored=True)

    @property
    def ignored(self) -> float:
        """The tolerance in log time."""
        return log1p(self.tolerance)

    @property
    def noticed(self) -> float:
        """The smallest change, in log time, that never passes in silence."""
        return log1p(self.detect)
