"""What a refresh takes over, and what that changes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import MOST_RUNS
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.baseline import Origin
from ..model.baseline import RunSummary
from ..model.environment import DeviceKind
from ..model.measurement import Measurement
from ..model.metric import METRICS
from ..model.metric import Kind
from ..model.metric import Metric
from ..model.refresh import Refresh
from ..model.typical import typical_time
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from .document import rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A metric's typical value before and after, in its unit; ``None`` where it has none.

    ``anchor`` is the value that its drift is counted from, where it was stored before.
    """

    test: str
    metric: str
    old: float | None
    new: float | None
    anchor: float | None = None


def selects(
    refresh: Refresh,
    verdict: TestVerdict,
    entry: Entry | None,
    runs: Sequence[Measurement],
) -> bool:
    """Whether *refresh* takes over the test that *verdict* judges by its fresh *runs*.

    What regressed is only taken by ``Refresh.ALL``, and what has no number by none.
    """
    if not any(run.times or run.exact for run in runs):
        return False
    if refresh is Refresh.ALL:
        return True
    outcomes = {v.outcome for v in verdict.verdicts}
    # The whole entry is replaced: with an improvement a regression would slip in.
    if Outcome.REGRESSED in outcomes:
        return False
    if refresh is Refresh.IMPROVED:
        return Outcome.IMPROVED in outcomes
    if refresh is Refresh.MISSING:
        return entry is None or any(_is_missing(m, entry, runs) for m in _gated())
    return entry is not None and any(
        _is_inside(metric, verdict) and _has_drifted(metric, entry, runs)
        for metric in _gated()
    )


def new_entry(runs: Sequence[Measurement], origin: Origin | None = None) -> Entry:
    """Make the fresh *runs*, at least one, the entry of a test, with no anchor yet.

    Disturbed runs are left out where enough others remain.
    """
    clean = [run for run in runs if not run.dirty]
    taken = clean if len(clean) >= ENOUGH_RUNS else runs
    kept = tuple(RunSummary.of(run) for run in taken[-MOST_RUNS:])
    software = dict(runs[-1].environment.software)
    return Entry(runs=kept, software=software, origin=origin)


def typical_values(entry: Entry, kind: DeviceKind) -> dict[str, float]:
    """Return what *entry* says of each gated metric that it has, in the metric's unit.

    Typical is where the runs of a time lie (``typical_time``), and the largest of a
    count or size; both as they are stored, to four digits.
    """
    values = {m.name: _typical(m.name, entry.runs, kind) for m in _gated()}
    return {name: value for name, value in values.items() if value is not None}


def changes(old: Baselines, new: Baselines) -> tuple[Change, ...]:
    """Every gated metric whose typical value differs, by test and metric."""
    kind = new.hardware.kind
    tests = sorted({*old.entries, *new.entries})
    return tuple(
        change
        for test in tests
        for change in _changes_of(
            test, old.entries.get(test), new.entries.get(test), kind
        )
        if change.old != change.new
    )


def _changes_of(
    test: str, old: Entry | None, new: Entry | None, kind: DeviceKind
) -> Iterator[Change]:
    before = typical_values(old, kind) if old else {}
    after = typical_values(new, kind) if new else {}
    anchors = {**old.anchor, **(new.anchor if new else {})} if old else {}
    for name in sorted({*before, *after}):
        yield Change(
            test=test,
            metric=name,
            old=before.get(name),
            new=after.get(name),
            anchor=anchors.get(name),
        )


def _typical(name: str, runs: Sequence[RunSummary], kind: DeviceKind) -> float | None:
    times = [run.times[name].location(kind) for run in runs if name in run.times]
    if times:
        return rounded(typical_time(times))
    return max((run.exact[name] for run in runs if name in run.exact), default=None)


def _gated() -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.gated]


def _is_missing(metric: Metric, entry: Entry, runs: Sequence[Measurement]) -> bool:
    return _has(runs, metric) and not _has(entry.runs, metric)


def _has(runs: Sequence[Measurement | RunSummary], metric: Metric) -> bool:
    return any(metric.name in {*run.times, *run.exact} for run in runs)


def _is_inside(metric: Metric, verdict: TestVerdict) -> bool:
    """Whether the metric passed, and no rule said otherwise."""
    outcomes = {v.outcome for v in verdict.verdicts if v.metric == metric.name}
    return Outcome.PASS in outcomes and outcomes <= {Outcome.PASS, Outcome.NOT_JUDGED}


def _has_drifted(metric: Metric, entry: Entry, runs: Sequence[Measurement]) -> bool:
    kind = runs[-1].environment.hardware.kind
    stored = _values(metric, entry.runs, kind)
    fresh = _values(metric, [RunSummary.of(run) for run in runs], kind)
    if not stored or not fresh:
        return False
    now = [rounded(typical_time(fresh))] if metric.kind is Kind.NOISY else fresh
    return min(now) < min(stored) or max(now) > max(stored)


def _values(
    metric: Metric, runs: Sequence[RunSummary], kind: DeviceKind
) -> list[float]:
    """Read the metric in each run that has it; a CPU's times by their first decile."""
    if metric.kind is Kind.EXACT:
        return [run.exact[metric.name] for run in runs if metric.name in run.exact]
    times = [run.times[metric.name] for run in runs if metric.name in run.times]
    return [t.location(kind) for t in times]
