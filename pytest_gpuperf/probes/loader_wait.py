"""The share of a loop that the host waits for its loader, from its timed rounds."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from ..model.loader_metric import LOADER_WAIT
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.measurement import thinned
from ..model.metric import STEP_MS
from .batches import Batches
from .batches import Fetched


SINGLE: Final = (
    "every epoch of this loader is a single batch, and the first batch of an epoch is "
    "not counted; give it more of them"
)

LONG_OPENING: Final = 2.0
"""Steps that the first batch of an epoch may take before that is told."""


def wait_pct(before: Fetched, after: Fetched, wall_ns: int) -> float | None:
    """Return the percentage of *wall_ns* in which the host was in ``next``.

    Opening an epoch is left out of both. ``None`` where nothing else is left.
    """
    loop_ns = wall_ns - (after.opening_ns - before.opening_ns)
    if after.batches == before.batches or loop_ns <= 0:
        return None
    return 100 * (after.waited_ns - before.waited_ns) / loop_ns


def with_loader_wait(
    measurement: Measurement, batches: Batches, shares: Sequence[float]
) -> Measurement:
    """Add the *shares* of a loop's rounds, or why there are none, to *measurement*."""
    name = LOADER_WAIT.name
    remarks = (*measurement.remarks, *_on_openings(batches, measurement))
    if not shares:
        unmeasured = {**measurement.unmeasured, name: SINGLE}
        return replace(measurement, unmeasured=unmeasured, remarks=remarks)
    return replace(
        measurement,
        times={**measurement.times, name: Distribution.of(shares)},
        samples={**measurement.samples, name: thinned(shares)},
        remarks=remarks,
    )


def _on_openings(batches: Batches, measurement: Measurement) -> Iterator[str]:
    took_ms = median(batches.openings_ns) / 1e6
    if took_ms > LONG_OPENING * measurement.times[STEP_MS.name].q50:
        yield (
            f"the first batch of an epoch takes {took_ms:.3g} ms, which is not counted "
            f"in {LOADER_WAIT.name}"
        )
