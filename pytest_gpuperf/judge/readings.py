"""The values that the rules compare, one number a run, and words for what they find."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log, log1p
from typing import Final

from ..model.baseline import FULL_RUNS, RunSummary, by_session, typical_time
from ..model.environment import Capability, DeviceKind
from ..model.measurement import Measurement, locating, location
from ..model.metrics import METRICS, PREDICTED, Metric, MetricKind, Unit
from .statistics import ASSUMED_SHIFT, PASS_RISK, SessionShift, Spread, without_odd


# The stored runs of one time, and the change that they allow.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimes:
    """What the stored runs of one time say.

    ``typical`` is where they lie, in the time's unit; ``slow`` and ``fast`` are the
    second slowest and second fastest against it, the very slowest and fastest below
    8 runs, unless that one is odd. ``shift`` is that between sessions; ``None`` on
    devices of which none is assumed. ``is_now`` says that all stored runs are of the
    fresh ones' session: then no shift lies between.
    """

    runs: int
    typical: float
    slow: float
    fast: float
    spread: Spread
    shift: SessionShift | None = None
    is_now: bool = False

    @classmethod
    def of(
        cls,
        values: Sequence[float],
        prior: Spread | None,
        assumed: Spread,
        shift: SessionShift | None = None,
        *,
        is_now: bool = False,
    ) -> StoredTimes:
        """Derive it from *values*, ascending and positive, at least one.

        One that says nothing of its scatter, without a *prior*, has the *assumed* one.
        """
        typical = typical_time(values)
        logs = [log(value / typical) for value in values]
        calm = without_odd(logs)
        place = 1 if len(values) >= FULL_RUNS else 0
        return cls(
            runs=len(values),
            typical=typical,
            # Below 8 runs the extreme one is the edge, and a single wild run would hide
            # any slowdown.
            slow=logs[-1 - place] if place or calm[-1] == logs[-1] else logs[-2],
            fast=logs[place] if place or calm[0] == logs[0] else logs[1],
            spread=Spread.of_calm(calm, prior) or assumed,
            shift=shift,
            is_now=is_now,
        )

    def margin(self, fresh: int) -> float:
        """Return how far below a slowdown the mean of *fresh* runs rules it out, in log time."""
        error = self.spread.error(fresh, self.runs)
        return self.spread.quantile(PASS_RISK) * error


def shift_of(
    metric: Metric,
    runs: Sequence[RunSummary],
    kind: DeviceKind,
    pooled: Spread | None = None,
) -> SessionShift | None:
    """Return what *metric* shifts by between sessions, as the stored *runs* show it."""
    if kind not in ASSUMED_SHIFT:
        return None
    return SessionShift.of(sessions_of(metric, runs, kind), pooled, ASSUMED_SHIFT[kind])


def sessions_of(
    metric: Metric, runs: Sequence[RunSummary], kind: DeviceKind
) -> list[list[float]]:
    """Return the logs of *metric* by session, without odd runs; each positive."""
    found = [
        [log(value) for value in stored_values(metric, session, kind)]
        for session in by_session(runs)
    ]
    if len(found) == 1:
        return found
    calm = set(without_odd([value for logs in found for value in logs]))
    kept = [[value for value in logs if value in calm] for logs in found]
    return [logs for logs in kept if logs]


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


MAX_RUNS: Final = 5
"""Clean runs after which a time that is still inconclusive stays INCONCLUSIVE."""

MOST_REPEATED: Final = 3
"""Dirty runs that are replaced by further ones."""

WHOLE_PERCENT: Final = 100.0
"""Percent: all there is, which no share of waiting reaches."""

DISTURBANCE: Final = {
    DeviceKind.CPU: 3.5,
    DeviceKind.CUDA: 6.0,
    DeviceKind.SCRIPTED: 3.5,
}
"""Factor that a disturbed machine may add to a time, waiting for a core apart.

It adds time, and not any amount of it: the larger a slowdown, the less it can hide it.

On a CPU, neighbours on the core's other thread, in the caches and on the memory bus
added a factor of 2.6 at most. For a GPU it is reasoned, not measured: a throttled clock
falls to a fifth of its boost, and one other process takes half of the time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A metric's value in one run, in its unit, and why it must not blame code.

    ``least`` is the least that a disturbed run would have shown on a quiet machine, as
    far as that is known, ``granted`` the factor by which a disturbance may have slowed it.
    """

    value: float
    dirty: tuple[str, ...] = ()
    least: float | None = None
    granted: float | None = None

    @property
    def proven(self) -> float | None:
        """What code may be blamed for."""
        return self.least if self.dirty else self.value


def readings(metric: Metric, runs: Sequence[Measurement]) -> tuple[Reading, ...]:
    """Read *metric* in those of *runs* that measured it."""
    found = ((run, _value(metric, run, run.environment.hardware.kind)) for run in runs)
    return tuple(
        _reading(metric, run, value) for run, value in found if value is not None
    )


def _reading(metric: Metric, run: Measurement, value: float) -> Reading:
    unwaited = run.unwaited.get(metric.name) if run.dirty else None
    # Written so that NaN counts as unknown, too.
    if unwaited is None or not unwaited > 0:
        return Reading(value=value, dirty=run.dirty)
    granted = DISTURBANCE[run.environment.hardware.kind]
    least = min(value, unwaited) / granted
    return Reading(value=value, dirty=run.dirty, least=least, granted=granted)


def least_values(metric: Metric, runs: Sequence[Measurement]) -> tuple[float, ...]:
    """Read *metric* as ``readings`` does, of the step with the least where steps differ."""
    return tuple(
        run.least.get(metric.name, seen.value)
        for run in runs
        for seen in readings(metric, [run])
    )


def stored_values(
    metric: Metric, runs: Sequence[RunSummary], kind: DeviceKind
) -> tuple[float, ...]:
    """Return *metric* of those stored *runs* that have it, ascending."""
    name = metric.name
    if metric.kind is MetricKind.EXACT:
        return tuple(sorted([run.exact[name] for run in runs if name in run.exact]))
    read = locating(metric, kind)
    return tuple(sorted([read(run.times[name]) for run in runs if name in run.times]))


def remaining_runs(seen: Sequence[Reading]) -> int:
    """Count the runs that may follow *seen*; a few dirty ones are replaced."""
    repeated = min(MOST_REPEATED, sum(bool(reading.dirty) for reading in seen))
    return max(0, MAX_RUNS + repeated - len(seen))


def dirt(seen: Iterable[Reading]) -> str:
    """Return every reason in *seen* not to blame code, once, in order.

    A reason that each run gave with a number of its own counts as one.
    """
    found: dict[str, str] = {}
    for why in (why for reading in seen for why in reading.dirty):
        found.setdefault(_NUMBER.sub("", why), why)
    return ", ".join(found.values())


_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?")


def despite(seen: Iterable[Reading]) -> str:
    """Say what was taken off disturbed readings before they blamed code."""
    readings = tuple(seen)
    granted = next(r.granted for r in readings if r.granted is not None)
    return (
        f", though disturbed ({dirt(readings)}): the time that it waited for a core is "
        f"taken off, and what is left divided by {granted:g}"
    )


def metric_of(kind: DeviceKind, name: str) -> Metric:
    """Return the metric as devices of *kind* have it: a prediction has no noise."""
    predicts = kind.has(Capability.FORECAST) and name in PREDICTED
    return PREDICTED[name] if predicts else METRICS[name]


def impossible(metric: Metric, runs: Sequence[Measurement]) -> str | None:
    """Say which measured number cannot be one: NaN, infinite, negative, a time of 0, a share of 100."""
    is_time = metric.kind is MetricKind.NOISY and metric.unit is not Unit.PERCENT
    for run in runs:
        for value in _numbers(metric, run):
            too_small = value <= 0 if is_time else value < 0
            if too_small or not isfinite(value):
                return f"not a {metric.unit.noun}: {value}"
    return _whole(metric, runs) if metric.unit is Unit.PERCENT else None


def unreal_time(run: Measurement) -> str | None:
    """Say which time that may be judged cannot be one; ``None`` if all can.

    Other times may be 0: a step that only waits has no CPU time.
    """
    for metric in METRICS.values():
        is_judged = metric.gated or metric.budget is not None
        if metric.unit is Unit.MS and is_judged:
            nonsense = impossible(metric, [run])
            if nonsense is not None:
                return f"{metric.name} is {nonsense}"
    return None


def _whole(metric: Metric, runs: Sequence[Measurement]) -> str | None:
    values = [r.value for r in readings(metric, runs) if r.value >= WHOLE_PERCENT]
    return f"not a share: {values[0]}" if values else None


def _value(
    metric: Metric, run: Measurement | RunSummary, kind: DeviceKind
) -> float | None:
    if metric.kind is MetricKind.EXACT:
        return run.exact.get(metric.name)
    times = run.times.get(metric.name)
    return None if times is None else location(metric, times, kind)


def _numbers(metric: Metric, run: Measurement) -> tuple[float, ...]:
    if metric.kind is MetricKind.EXACT:
        return (run.exact[metric.name],) if metric.name in run.exact else ()
    times = run.times.get(metric.name)
    if times is None:
        return ()
    return (times.q10, times.q25, times.q50, times.mean, times.samples)


# Formats numbers for the sentence of a verdict.


BYTE_UNITS: Final = (("MiB", 2**20, 0.1), ("KiB", 2**10, 1.0))
"""Symbols of bytes, their sizes, and how many of it take one: budgets are in MiB."""

_DIGITS: Final = 4
_MOST_DIGITS: Final = 5
"""Significant digits beyond which nobody compares two numbers by eye."""


def figure(metric: Metric, value: float) -> str:
    """*value* with its unit, to four digits: ``12.05 ms``, ``900 MiB``, ``1.3x``, ``35 %``."""
    return _written(metric, value, _DIGITS, value)


def against(metric: Metric, now: float, limit: float) -> str:
    """Both values in one unit, with as many digits as it takes to tell them apart.

    Bytes that differ by less have their difference behind them.
    """
    largest = max(abs(now), abs(limit))
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        left = _written(metric, now, digits, largest)
        right = _written(metric, limit, digits, largest)
        if left != right:
            return f"{left} against {right}"
    apart = now - limit
    if metric.unit is not Unit.BYTES or not round(apart):
        return f"{left} against {right}"
    return f"{left} against {right}, {apart:+.0f} B"


def _written(metric: Metric, value: float, digits: int, largest: float) -> str:
    """Write *value* in the unit in which *largest* is no small number."""
    if metric.unit is Unit.BYTES:
        for symbol, size, begin in BYTE_UNITS:
            if abs(largest) >= begin * size:
                return f"{plain(value / size, digits)} {symbol}"
        return f"{value:.0f} B"
    for scale in metric.scales if metric.unit is Unit.COUNT else ():
        if abs(largest) >= scale.least * scale.size and digits < _MOST_DIGITS:
            return f"{plain(value / scale.size, digits)} {scale.symbol}"
    return f"{plain(value, digits)}{metric.unit.suffix}"


def plain(value: float, digits: int = _DIGITS) -> str:
    """Write *value* without an exponent where it is large; whole numbers in full."""
    if abs(value) >= 10**digits or value == int(value):
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def percent(ratio: float) -> str:
    """Write a ratio of 0.01 as ``1 %``."""
    return f"{100 * ratio:.4g} %"


def times(ratio: float) -> str:
    """Write how many times: ``4 times``, ``4.21 times``, ``38 times``."""
    return f"{plain(ratio, 3)} times"


def change(now: float, baseline: float) -> str:
    """Relative change with its sign: ``+0.8 %``."""
    return signed(now / baseline - 1)


def signed(ratio: float) -> str:
    """Write a change of 0.008 as ``+0.8 %``."""
    return f"{100 * ratio:+.1f} %"


WOULD_HAVE_FAILED: Final = "would have failed"
"""The note on a failure that is a warning."""
