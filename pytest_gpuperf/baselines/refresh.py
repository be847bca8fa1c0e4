"""The entry that a refresh stores for a test, and how it differs from the old one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..judge.exact import bytes_beneath
from ..model.baseline import (
    ENOUGH_RUNS,
    GATED,
    MOST_RUNS,
    BaselineChange,
    Baselines,
    Entry,
    Judged,
    Leftovers,
    Refresh,
    RunSummary,
    StepSummary,
    cut_at,
    spread_over_sessions,
    typical_values,
)
from ..model.environment import DeviceKind
from ..model.finding import stored_lines
from ..model.measurement import Measurement
from ..model.metrics import METRICS, Metric
from ..model.verdict import Outcome, TestVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The tests to measure that a run collected, and the files it collected whole.

    ``others`` are the tests that are not to be measured. ``skipped`` are files that
    skipped themselves while they were collected. ``obstacle`` says why this run cannot
    know which tests there are; empty if it can.
    """

    tests: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    files: frozenset[str] = field(default_factory=frozenset)
    skipped: tuple[str, ...] = ()
    obstacle: str = ""


def leftovers(
    keys: Iterable[str],
    seen: Seen,
    calls: Mapping[str, Collection[str]],
    exists: Callable[[str], bool],
    *,
    prune: bool,
) -> Leftovers:
    """Find the entries among *keys* that no test will ask for again.

    *calls* has the calls of each test that passed, *exists* returns whether a file
    exists. Nothing is known about a file that exists and was not collected.
    """
    if seen.obstacle:
        return Leftovers()
    stale = tuple(_stale(keys, seen, calls, exists))
    there = {*seen.tests, *seen.others}
    gone = tuple(key for key in stale if _test_of(key, there) is None)
    return Leftovers(entries=stale, gone=gone, pruned=prune)


def unmeasured(
    stored: Iterable[str], passed: Collection[str], measured: Collection[str]
) -> tuple[str, ...]:
    """Return the *stored* calls of tests that *passed* without being *measured*."""
    return tuple(
        key
        for key in sorted(stored)
        if key not in measured and _test_of(key, passed) is not None
    )


def owns_one(tests: Collection[str], stored: Iterable[str]) -> bool:
    """Whether one of the *stored* calls is of one of the *tests*."""
    return any(_test_of(key, tests) is not None for key in stored)


def _stale(
    keys: Iterable[str],
    seen: Seen,
    calls: Mapping[str, Collection[str]],
    exists: Callable[[str], bool],
) -> Iterator[str]:
    tests = set(seen.tests)
    for key in sorted(keys):
        test, file = _test_of(key, tests), key.partition("::")[0]
        if test is not None:
            # A test that did not pass may not have come to all its calls, so all count
            # as made.
            if key not in calls.get(test, (key,)):
                yield key
        elif file in seen.files or not exists(file):
            yield key


def _test_of(key: str, tests: Collection[str]) -> str | None:
    """Return the test that made the call *key*; parameters may contain a ``#``."""
    test = key
    while test not in tests:
        test, sign, _ = test.rpartition("#")
        if not sign:
            return None
    return test


CHANGED: Final = frozenset({Outcome.REGRESSED, Outcome.IMPROVED})
"""Outcomes of a metric that differs from its baseline."""


def selects(
    refresh: Refresh,
    verdict: TestVerdict,
    entry: Entry | None,
    runs: Sequence[Measurement],
) -> bool:
    """Whether *refresh* takes over the test that *verdict* judges by its fresh *runs*."""
    if not runs:
        return False
    fresh = [RunSummary.of(run) for run in runs]
    # Evidence cannot be added to nothing: that is recorded first.
    kinds = (refresh, *([Refresh.MISSING] if refresh is Refresh.EVIDENCE else []))
    outcomes = outcomes_of(verdict)
    return any(takes(which, outcomes, entry, fresh) for which in kinds)


def outcomes_of(verdict: TestVerdict) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcomes of each metric, by budget and baseline."""
    outcomes: dict[str, tuple[Outcome, ...]] = {}
    for v in verdict.verdicts:
        outcomes[v.metric] = (*outcomes.get(v.metric, ()), v.outcome)
    return outcomes


def takes(
    refresh: Refresh,
    outcomes: Mapping[str, Collection[Outcome]],
    entry: Entry | None,
    runs: Sequence[RunSummary],
) -> bool:
    """Whether *refresh* takes fresh *runs*, with these *outcomes*, over *entry*.

    What regressed is only taken by ``Refresh.ALL``, and what has no number by none.
    """
    if not any(run.times or run.exact for run in runs):
        return False
    if refresh is Refresh.ALL:
        return True
    # The whole entry is replaced: with an improvement a regression would slip in.
    if any(Outcome.REGRESSED in found for found in outcomes.values()):
        return False
    if refresh is Refresh.IMPROVED:
        return differs(outcomes)
    if entry is None:
        return refresh is Refresh.MISSING
    return _takes_stored(refresh, outcomes, entry, runs)


def _takes_stored(
    refresh: Refresh,
    outcomes: Mapping[str, Collection[Outcome]],
    entry: Entry,
    runs: Sequence[RunSummary],
) -> bool:
    """Whether what did not regress is taken although there is an *entry*."""
    if refresh is Refresh.MISSING:
        return any(_has(runs, m) and not _has(entry.runs, m) for m in GATED)
    return any(run.times for run in runs) and not differs(outcomes)


def differs(outcomes: Mapping[str, Collection[Outcome]]) -> bool:
    """Whether a metric with one of these *outcomes* differs from its baseline."""
    return any(CHANGED.intersection(found) for found in outcomes.values())


def new_entry(runs: Sequence[Measurement], session: str = "") -> Entry:
    """Make the fresh *runs*, at least one, the entry of a test, with no anchor yet.

    Disturbed runs are left out where enough others remain. All are of one *session*.
    """
    clean = [run for run in runs if not run.dirty]
    # With fewer than enough runs a baseline can blame nothing, so disturbed runs are
    # better than too few.
    taken = clean if len(clean) >= ENOUGH_RUNS else runs
    kept = [
        # Without times there is nothing that differs between sessions.
        RunSummary.of(run, session if run.times else "")
        for run in taken[-MOST_RUNS:]
    ]
    last = min((run.further.last for run in kept if run.further), default=0)
    software = dict(runs[-1].environment.software)
    lines = stored_lines(runs[-1].findings)
    return Entry(
        runs=looked_until(last, kept),
        software=software,
        lines=lines,
        step=StepSummary.of(runs[-1]),
    )


def looked_until(last: int, runs: Iterable[RunSummary]) -> tuple[RunSummary, ...]:
    """Let the looks of *runs* at further steps end with the *last* one."""
    return tuple(
        replace(run, further=cut_at(last, run.further)) if run.further else run
        for run in runs
    )


def keeps_disturbed(runs: Sequence[Measurement]) -> bool:
    """Whether ``new_entry`` keeps those of *runs* that something disturbed."""
    dirty = sum(bool(run.dirty) for run in runs)
    return dirty > 0 and len(runs) - dirty < ENOUGH_RUNS


def with_exact_of(stored: Entry, fresh: Entry) -> Entry:
    """Give the *stored* runs the counts and bytes of the *fresh* ones, and keep their times.

    A few runs do not show how times vary, but they do show exact counts.
    """
    count = len(fresh.runs)
    runs = tuple(
        replace(run, exact={**run.exact, **new.exact}, further=new.further)
        for run, new in (
            (run, fresh.runs[number % count]) for number, run in enumerate(stored.runs)
        )
    )
    return replace(stored, runs=runs)


def with_evidence(stored: Entry, fresh: Entry) -> Entry | None:
    """Add the times of *fresh* to the *stored* runs; ``None`` where they are no evidence.

    They are of other code, of another torch, disturbed, or stored already. Counts and
    bytes stay, and so does the anchor: the same code is measured once more.
    """
    judged = fresh.judged or Judged()
    software = (stored.software.get("torch"), fresh.software.get("torch"))
    if differs(judged.outcomes) or judged.disturbed or len(set(software)) > 1:
        return None
    newest, known = stored.runs[-1], {run.session for run in stored.runs}
    runs = [
        replace(run, exact=newest.exact, further=newest.further)
        for run in fresh.runs
        if run.times
        and run.round_steps == newest.round_steps
        and run.session not in known
    ]
    if not runs:
        return None
    spread = spread_over_sessions((*stored.runs, *runs), MOST_RUNS)
    return replace(stored, runs=spread)


def changes(old: Baselines, new: Baselines) -> tuple[BaselineChange, ...]:
    """Return every gated metric with another typical value, by test and metric."""
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
) -> Iterator[BaselineChange]:
    before = typical_values(old, kind) if old else {}
    after = typical_values(new, kind) if new else {}
    anchors = {**after, **new.anchor} if old and new else {}
    for name in sorted({*before, *after}):
        yield BaselineChange(
            test=test,
            metric=name,
            old=before.get(name),
            new=after.get(name),
            anchor=anchors.get(name),
            workspace_bytes=_kept(METRICS[name], old, new),
        )


def _kept(metric: Metric, old: Entry | None, new: Entry | None) -> int:
    """Return what cuBLAS keeps of *metric*, if that is the same in both."""
    kept = {bytes_beneath(metric, entry.runs) for entry in (old, new) if entry}
    return kept.pop() if len(kept) == 1 else 0


def _has(runs: Sequence[RunSummary], metric: Metric) -> bool:
    return any(metric.name in {*run.times, *run.exact} for run in runs)
