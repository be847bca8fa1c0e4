"""What ``gpuperf.fits`` returns: a yes or a no that can be asserted, and its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .model.forecast import Fit
from .model.forecast import Forecast
from .model.forecast import Lever
from .model.metric import MIB
from .report.memory_table import memory_lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prospect:
    """Whether a step fits a GPU of ``gb`` GiB: assert on it, or print it.

    ``levers`` says what the peak would be with each known lever, in MiB; ``None``
    where the step fails with it.
    """

    forecast: Forecast
    with_levers: Mapping[Lever, Forecast | None]
    gb: float
    fit: Fit

    @property
    def peak_mb(self) -> float:
        """Predicted peak of the allocated memory, in MiB."""
        return self.forecast.allocated_bytes / MIB

    @property
    def reserved_mb(self) -> float:
        """Predicted peak of the memory that the allocator reserves, in MiB."""
        return self.forecast.reserved_bytes / MIB

    @property
    def levers(self) -> Mapping[str, float | None]:
        return {
            lever.value: None if again is None else again.allocated_bytes / MIB
            for lever, again in self.with_levers.items()
        }

    def __bool__(self) -> bool:
        """Skip the test where the prediction is too close to tell, or a guess."""
        __tracebackhide__ = True
        if self.fit in {Fit.TOO_CLOSE, Fit.UNKNOWN}:
            pytest.skip(f"whether it fits {self.fit.value}:\n{self}")
        return self.fit is Fit.FITS

    def __str__(self) -> str:
        lines = memory_lines(
            self.forecast, self.with_levers, self.gb, self.fit, Path.cwd()
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<{self.fit.value} in {self.gb:g} GiB: {self.peak_mb:.1f} MiB allocated>"
        )
