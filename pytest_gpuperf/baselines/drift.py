"""Limits of drift: what a refresh leaves alone, what it refuses, and where the anchor
is.

Each change below the limit is harmless, but many of them add up to a slowdown. So the
anchor remembers where a metric once was. It stays while the baseline follows small
changes, and what is worse than it by more than ``detect`` is stored only on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Final

from ..judge.exact import bytes_beneath, margin
from ..judge.readings import Limits, figure, metric_of, percent, stored_values
from ..judge.statistics import ASSUMED_SHIFT, Spread, ratio
from ..judge.verdict import floored, noticed, tolerated
from ..model.baseline import FULL_RUNS, Drift, Entry, Kept, typical_values, with_anchor
from ..model.budget import Tolerance
from ..model.environment import DeviceKind
from ..model.measurement import shared_steps
from ..model.metrics import OCCASIONAL, Metric, MetricKind
from .refresh import looked_until


DRIFT_SIGMAS: Final = 2.0
"""Standard deviations from the anchor that count as noise.

The standard error of 8 runs against 8 is 0.86 of one (``Spread.error``): where the
scatter is known, unchanged code is taken for slower in 1 of 100 refreshes.
"""

LIKELY_SHIFTS: Final = 2.8
"""Assumed shifts by which two sessions differ with 95 % probability, at most: 2 √2."""

OWN_NAME: Final = "pytest-gpuperf"

QUIETER: Final = 0.5
"""Share of the stored scatter at which fresh runs are worth storing for it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leeway:
    """How far one test may move, by its author's tolerance and the suite's scatter.

    An entry of fewer than so many ``runs`` is always rewritten.
    """

    kind: DeviceKind
    tolerance: Tolerance
    prior: Spread | None = None
    runs: int = FULL_RUNS

    def metric(self, name: str) -> Metric:
        """Return the metric as the device has it."""
        return metric_of(self.kind, name)


_Limit = tuple[float, str]
"""A value in the unit of a metric, and in words what it comes from."""


def kept(test: str, old: Entry | None, new: Entry, leeway: Leeway) -> Kept | None:
    """Return a metric which shows that *new* has not moved; ``None`` if it has.

    An entry of too few runs, or of another torch, is always rewritten; our own version
    alone changes none.
    """
    if old is None or _is_outdated(old, new, leeway):
        return None
    before = typical_values(old, leeway.kind)
    after = typical_values(new, leeway.kind)
    metrics = [leeway.metric(name) for name in before]
    if not metrics or any(_has_moved(metric, old, new, leeway) for metric in metrics):
        return None
    if _looks_moved(old, new):
        return None
    # A noisy metric first, if there is one: only it has a scatter to report.
    shown = min(metrics, key=lambda metric: metric.kind is MetricKind.EXACT)
    noisy = shown.kind is MetricKind.NOISY
    return Kept(
        test=test,
        metric=shown.name,
        stored=before[shown.name],
        now=after[shown.name],
        noise=ratio(_spread(shown, old, leeway).sigma) if noisy else None,
    )


def _looks_moved(old: Entry, new: Entry) -> bool:
    """Whether further steps do something else now, or nobody looked at them before."""
    before = [run.further for run in old.runs if run.further]
    after = [run.further for run in new.runs if run.further]
    if not before or not after:
        return bool(after)
    steps = shared_steps([*before, *after])
    return any(
        max(look.beyond(name, 0, steps) for look in before)
        != max(look.beyond(name, 0, steps) for look in after)
        for name in OCCASIONAL
    )


def drifts(
    test: str, old: Entry | None, new: Entry, leeway: Leeway
) -> tuple[Drift, ...]:
    """Return each gated metric of *new* that is too far above the anchor of *old*."""
    if old is None:
        return ()
    anchors, after = anchors_of(old, leeway.kind), typical_values(new, leeway.kind)
    limits = {
        name: _worst(leeway.metric(name), anchors[name], old, leeway)
        for name in after
        if name in anchors
    }
    return tuple(
        Drift(
            test=test,
            metric=name,
            anchor=anchors[name],
            now=after[name],
            limit=limit,
            bound=bound,
        )
        for name, (limit, bound) in limits.items()
        if after[name] > limit
    )


def strays(test: str, old: Entry, new: Entry, leeway: Leeway) -> tuple[Drift, ...]:
    """Return what is too far above the anchor of *old* in *new*, or in its new runs alone.

    Those may be as slow besides as another session makes them in all likelihood.
    """
    added = [run for run in new.runs if run not in old.runs]
    found = drifts(test, old, new, leeway)
    allowed = ratio(LIKELY_SHIFTS * ASSUMED_SHIFT.get(leeway.kind, 0.0))
    alone = drifts(test, old, replace(new, runs=tuple(added)), leeway)
    return found or tuple(
        replace(
            drift,
            limit=drift.limit * (1 + allowed),
            bound=f"{drift.bound} and {percent(round(allowed, 3))} for another session"
            if allowed
            else drift.bound,
        )
        for drift in alone
        if drift.now > drift.limit * (1 + allowed)
    )


def anchored(
    old: Entry | None, new: Entry, leeway: Leeway, *, accept_drift: bool = False
) -> Entry:
    """Give *new* its anchors: those of *old*, moved to where a metric got better.

    A gain beyond tolerance and noise must not become room for later losses. With
    *accept_drift* the anchor also follows what is worse than a refresh would store.
    """
    if old is None:
        return with_anchor(new, {}, leeway.kind)
    new, after = _looking_as(old, new), typical_values(new, leeway.kind)
    anchors = anchors_of(old, leeway.kind)
    moved = {
        name: value
        for name, value in after.items()
        if name not in anchors
        or value < _best(leeway.metric(name), anchors[name], old, leeway)
        or (
            accept_drift
            and value > _worst(leeway.metric(name), anchors[name], old, leeway)[0]
        )
    }
    return with_anchor(new, {**anchors, **moved}, leeway.kind)


def _looking_as(old: Entry, new: Entry) -> Entry:
    """Let looks at further steps end where those of *old* did, unless they are far apart.

    How far there was time to look differs, and is no change.
    """
    looks = [[run.further.last for run in e.runs if run.further] for e in (old, new)]
    before, after = (min(last, default=0) for last in looks)
    is_near = before <= 2 * after and after <= 2 * before
    return replace(new, runs=looked_until(before, new.runs)) if is_near else new


def anchors_of(entry: Entry, kind: DeviceKind) -> Mapping[str, float]:
    """Return the anchors of *entry*; if it has none, what is stored is the oldest."""
    return {**typical_values(entry, kind), **entry.anchor}


def _is_outdated(old: Entry, new: Entry, leeway: Leeway) -> bool:
    kind = leeway.kind
    return (
        len(old.runs) < leeway.runs
        or _versions(old) != _versions(new)
        or _knows_no_lines(old, new)
        or typical_values(old, kind).keys() != typical_values(new, kind).keys()
    )


def _versions(entry: Entry) -> Mapping[str, str]:
    """Return the versions that numbers may depend on."""
    timed = any(run.times for run in entry.runs)
    idle = {OWN_NAME} if timed else {OWN_NAME, "python"}
    return {n: v for n, v in entry.software.items() if n not in idle}


def _knows_no_lines(old: Entry, new: Entry) -> bool:
    """Whether *old* is of a version of ours that stored no lines, and *new* has some."""
    is_older = old.software.get(OWN_NAME) != new.software.get(OWN_NAME)
    return is_older and old.lines is None and new.lines is not None


def _has_moved(metric: Metric, old: Entry, new: Entry, leeway: Leeway) -> bool:
    if metric.kind is MetricKind.EXACT:
        return _has_left_its_range(metric, old, new, leeway)
    before = typical_values(old, leeway.kind)[metric.name]
    after = typical_values(new, leeway.kind)[metric.name]
    # Logarithms: the scatter of times is relative.
    noise = _spread(metric, old, leeway).sigma
    return abs(log(after / before)) > noise or _is_quieter(
        metric, old, new, leeway.kind
    )


def _has_left_its_range(metric: Metric, old: Entry, new: Entry, leeway: Leeway) -> bool:
    """Whether a run is outside the stored range, or none reaches its upper end now.

    Exact metrics have no noise. A change inside the tolerance is taken over as well:
    left alone, it would be blamed on whoever adds the next.
    """
    stored = stored_values(metric, old.runs, leeway.kind)
    fresh = stored_values(metric, new.runs, leeway.kind)
    highest = stored[-1] - _margin(metric, stored[-1], old, leeway)
    return fresh[0] < stored[0] or fresh[-1] > stored[-1] or fresh[-1] < highest


def _is_quieter(metric: Metric, old: Entry, new: Entry, kind: DeviceKind) -> bool:
    """Whether the *new* runs scatter so much less that the *old* ones hide changes."""
    before, after = _scatter(metric, old, kind), _scatter(metric, new, kind)
    return after is not None and before is not None and after < QUIETER * before


def _scatter(metric: Metric, entry: Entry, kind: DeviceKind) -> float | None:
    spread = Spread.of(_logs(metric, entry, kind), None)
    return None if spread is None else spread.sigma


def _spread(metric: Metric, entry: Entry, leeway: Leeway) -> Spread:
    logs = _logs(metric, entry, leeway.kind)
    known = Spread.of(logs, leeway.prior) if logs else None
    return known or Spread.assumed(leeway.kind, metric.scatter)


def _logs(metric: Metric, entry: Entry, kind: DeviceKind) -> list[float]:
    return [log(value) for value in stored_values(metric, entry.runs, kind)]


def _worst(metric: Metric, anchor: float, old: Entry, leeway: Leeway) -> _Limit:
    """Return how far above *anchor* a refresh goes by itself."""
    if metric.kind is MetricKind.EXACT:
        return _worst_exact(metric, anchor, old, leeway)
    detect = _limits(metric, anchor, leeway).detect
    noise = _noise(metric, old, leeway)
    if noise > detect:
        bound = f"twice its own noise, {percent(round(noise, 3))}"
        return anchor * (1 + noise), bound
    return anchor * (1 + detect), f"detect {percent(detect)}"


def _worst_exact(metric: Metric, anchor: float, old: Entry, leeway: Leeway) -> _Limit:
    ignored = _margin(metric, anchor, old, leeway)
    share = tolerated(metric, leeway.tolerance)
    relative = ignored > floored(metric, leeway.tolerance).floor or not ignored
    bound = percent(share) if relative else figure(metric, ignored)
    return anchor + ignored, f"tolerance {bound}"


def _best(metric: Metric, anchor: float, old: Entry, leeway: Leeway) -> float:
    """Return the value below which a metric is better than *anchor*, and not by chance."""
    if metric.kind is MetricKind.EXACT:
        return anchor - _margin(metric, anchor, old, leeway)
    ignored = _limits(metric, anchor, leeway).tolerance
    return anchor / (1 + max(ignored, _noise(metric, old, leeway)))


def _margin(metric: Metric, reference: float, old: Entry, leeway: Leeway) -> float:
    share = tolerated(metric, leeway.tolerance)
    own = reference - bytes_beneath(metric, old.runs)
    return margin(floored(metric, leeway.tolerance), own, share)


def _limits(metric: Metric, reference: float, leeway: Leeway) -> Limits:
    return Limits.of(
        reference,
        tolerance=tolerated(metric, leeway.tolerance),
        detect=noticed(metric, leeway.tolerance),
        floor=floored(metric, leeway.tolerance).floor,
    )


def _noise(metric: Metric, old: Entry, leeway: Leeway) -> float:
    """Return the largest change, a ratio, that noise alone may cause."""
    return ratio(DRIFT_SIGMAS * _spread(metric, old, leeway).sigma)
