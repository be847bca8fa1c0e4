"""The result of ``gpuperf.fits``: a yes or no that can be asserted, and its reasons."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..model.forecast import Fit
from ..model.forecast import Forecast
from ..model.forecast import Saving
from ..model.metric import MIB


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prospect:
    """Whether a step fits a GPU of ``gb`` GiB: assert on it, or print it.

    ``savings`` says what the peak would be with each known saving, in MiB; ``None``
    if the step fails with it.
    """

    forecast: Forecast
    with_savings: Mapping[Saving, Forecast | None]
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
    def savings(self) -> Mapping[str, float | None]:
        return {
            saving.value: None if again is None else again.allocated_bytes / MIB
            for saving, again in self.with_savings.items()
        }

    def __bool__(self) -> bool:
        """Skip the test where the prediction is too close to tell, or a guess."""
        __tracebackhide__ = True
        # `assert gpuperf.fits(...)` must not fail, nor pass, on what is not known.
        if self.fit in {Fit.TOO_CLOSE, Fit.UNKNOWN}:
            pytest.skip(str(self))
        return self.fit is Fit.FITS

    def __str__(self) -> str:
        # Not at the top: a plain run imports this module, and seldom prints it.
        from ..report.screen.memory import MemoryView
        from ..report.screen.memory import memory_lines

        view = MemoryView(name="the step", here=Path.cwd(), line_of=linecache.getline)
        lines = memory_lines(self.forecast, self.with_savings, self.gb, self.fit, view)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<{self.fit.value} in {self.gb:g} GiB: {self.peak_mb:.1f} MiB allocated>"
        )
