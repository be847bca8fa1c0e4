"""Whether the machine is as steady as it was when the baselines were recorded.

What others do on a machine slows it for seconds or minutes: each run of that time is
slow, and no number of them averages that out. It shows in how much the runs of one test
differ, which code that is slower does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from math import fsum
from math import log
from math import sqrt
from typing import Final

from ..model.measurement import Measurement
from ..model.metrics import STEP_MS
from .readings import readings
from .statistics import Prior
from .statistics import scatter
from .tails import f_sf


FEWEST_CONFIRMED: Final = 3
"""Tests with several confirming runs below which they say nothing about the machine."""

ADDED: Final = 2.5
"""What others may add to a run over how much that differs from run to run.

On 2 cores of a shared machine it was 12 % of a step, give or take 4.5 %, for 30 s.
"""

UNSTEADY_RISK: Final = 0.05
"""Risk to take a machine for unsteady that is as steady as with the stored runs."""


def burst(runs: Iterable[Sequence[Measurement]], stored: Prior | None) -> float:
    """Return how far others may move a run, as a standard deviation in log time.

    *runs* are those of each call, oldest first, *stored* says how far stored ones scatter.
    0 if the runs scatter no further, by the F test of two variances, or nobody knows.
    """
    found = sorted(
        (scatter(logs), len(logs) - 1) for logs in map(_confirming, runs) if logs[1:]
    )
    # A test whose own runs have become erratic must not excuse all others.
    common = found[:-1]
    nu = sum(freedom for _, freedom in common)
    if stored is None or len(common) < FEWEST_CONFIRMED:
        return 0.0
    variance = fsum(squares for squares, _ in common) / nu
    if f_sf(variance / stored.sigma**2, nu, stored.nu) >= UNSTEADY_RISK:
        return 0.0
    return ADDED * sqrt(variance - stored.sigma**2)


def _confirming(runs: Sequence[Measurement]) -> list[float]:
    """Return the logs of the clean step times after the first: that one was slow by choice."""
    found = readings(STEP_MS, [run for run in runs[1:] if not run.dirty])
    return [log(reading.value) for reading in found if reading.value > 0]
