"""What the rules look at: one number a run."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from ..model.baseline import RunSummary
from ..model.environment import DeviceKind
from ..model.measurement import Measurement
from ..model.measurement import location
from ..model.metric import Kind
from ..model.metric import Metric
from ..model.metric import Unit


MAX_RUNS: Final = 5
"""Clean runs after which a time that is still undecided stays INCONCLUSIVE."""

MOST_REPEATED: Final = 3
"""Dirty runs that are made up for by another."""

WHOLE: Final = 100.0
"""Percent: all there is, which no share of waiting reaches."""

_NAMES: Final = {
    Unit.MS: "time",
    Unit.BYTES: "size",
    Unit.COUNT: "count",
    Unit.PERCENT: "share",
    Unit.RATIO: "ratio",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A metric's value in one run, in its unit, and why it must not blame code."""

    value: float
    dirty: tuple[str, ...] = ()


def readings(metric: Metric, runs: Sequence[Measurement]) -> tuple[Reading, ...]:
    """Read *metric* in those of *runs* that measured it."""
    found = ((run, _value(metric, run, run.environment.hardware.kind)) for run in runs)
    return tuple(
        Reading(value=value, dirty=run.dirty)
        for run, value in found
        if value is not None
    )


def stored_values(
    metric: Metric, runs: Sequence[RunSummary], kind: DeviceKind
) -> tuple[float, ...]:
    """Return *metric* of those stored *runs* that have it, ascending."""
    values = (_value(metric, run, kind) for run in runs)
    return tuple(sorted(value for value in values if value is not None))


def remaining_runs(seen: Sequence[Reading], most: int = MAX_RUNS) -> int:
    """Count the runs that may follow *seen*, so that *most* are clean.

    A few dirty ones are made up for.
    """
    repeated = min(MOST_REPEATED, sum(bool(reading.dirty) for reading in seen))
    return max(0, most + repeated - len(seen))


def dirt(seen: Iterable[Reading]) -> str:
    """Every reason in *seen* not to blame code, once, in order."""
    return ", ".join(dict.fromkeys(why for reading in seen for why in reading.dirty))


def impossible(metric: Metric, runs: Sequence[Measurement]) -> str | None:
    """Say which measured number cannot be one: NaN, infinite, negative, a time of 0, a share of 100."""
    is_time = metric.kind is Kind.NOISY and metric.unit is not Unit.PERCENT
    for value in (value for run in runs for value in _numbers(metric, run)):
        too_small = value <= 0 if is_time else value < 0
        if too_small or not isfinite(value):
            return f"not a {_NAMES[metric.unit]}: {value}"
    return _whole(metric, runs)


def _whole(metric: Metric, runs: Sequence[Measurement]) -> str | None:
    values = [r.value for r in readings(metric, runs) if r.value >= WHOLE]
    return (
        f"not a share: {values[0]}" if metric.unit is Unit.PERCENT and values else None
    )


def _value(
    metric: Metric, run: Measurement | RunSummary, kind: DeviceKind
) -> float | None:
    if metric.kind is Kind.EXACT:
        return run.exact.get(metric.name)
    times = run.times.get(metric.name)
    return None if times is None else location(metric, times, kind)


def _numbers(metric: Metric, run: Measurement) -> tuple[float, ...]:
    if metric.kind is Kind.EXACT:
        return (run.exact[metric.name],) if metric.name in run.exact else ()
    times = run.times.get(metric.name)
    if times is None:
        return ()
    return (times.q10, times.q25, times.q50, times.mean, times.samples)
