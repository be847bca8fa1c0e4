"""Chooses which measured entries become baselines: those that moved without drifting
too far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from ..judge.calls import prior_of
from ..model.baseline import (
    ENOUGH_RUNS,
    EXACT_RUNS,
    AcceptancePlan,
    BaselineChange,
    Baselines,
    Drift,
    Entry,
    Judged,
    Kept,
    Refresh,
    full_runs,
    with_anchor,
)
from ..model.metrics import METRICS, MetricKind
from .drift import Leeway, anchored, anchors_of, drifts, kept, strays
from .refresh import CHANGED, changes, differs, takes, with_evidence, with_exact_of
from .store import update


Measured = tuple[str, Entry, Leeway]
"""A call, its measured entry without an anchor, and how far it may move."""

NO_RUN_JUDGED: Final = Judged()
"""Used for an entry that no run has judged."""

BELOW: Final = ("[", "::", "#", "/")
"""What follows the name of a file, class or test in the key of an entry below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which entries of a pending file to accept: of these kinds, of these names.

    A name is that of a test, class, file or folder, or a pattern with ``*`` and ``?``;
    ``calls`` are keys of entries. Without any of them every test is meant.
    """

    kinds: tuple[Refresh, ...] = (Refresh.ALL,)
    only: tuple[str, ...] = ()
    calls: frozenset[str] = frozenset()
    accept_drift: bool = False

    def names(self, key: str) -> bool:
        """Whether the entry *key* is meant."""
        return not (self.only or self.calls) or self.is_named(key)

    def is_named(self, key: str) -> bool:
        """Whether the entry *key* is asked for, and not only one of all."""
        return key in self.calls or any(_is_named(key, name) for name in self.only)


def planned(
    old: Mapping[str, Entry],
    measured: Iterable[Measured],
    *,
    accept_drift: bool,
    enough: int = 1,
) -> AcceptancePlan:
    """Divide what was *measured* by how it moved since the *old* baselines.

    The times of *enough* runs are not given up for those of fewer.
    """
    alike: list[Kept] = []
    refused: list[Drift] = []
    thin: list[str] = []
    counted: list[str] = []
    entries: dict[str, Entry] = {}
    for key, new, leeway in measured:
        stored = old.get(key)
        few = stored is not None and len(new.runs) < min(enough, len(stored.runs))
        fresh = _with_stored_times(stored, new, leeway) if stored and few else new
        unmoved = None if _differs(new) else kept(key, stored, new, leeway)
        if unmoved:
            alike.append(unmoved)
        elif fresh is None:
            thin.append(key)
        elif found := () if accept_drift else drifts(key, stored, fresh, leeway):
            refused += found
        else:
            made = anchored(stored, fresh, leeway, accept_drift=accept_drift)
            # What a run judged belongs to its pending file alone.
            entries[key] = replace(made, judged=None)
            counted += [key] if few else []
    return AcceptancePlan(
        entries=entries,
        kept=tuple(alike),
        drifts=tuple(refused),
        thin=tuple(thin),
        counted=tuple(counted),
    )


def with_evidence_of(
    old: Mapping[str, Entry], measured: Iterable[Measured], *, accept_drift: bool
) -> AcceptancePlan:
    """Add what was *measured* to the *old* baselines, where it is of the same code.

    What has no baseline is recorded. No anchor moves.
    """
    known: list[Measured] = []
    missing: list[Measured] = []
    for one in measured:
        (known if one[0] in old else missing).append(one)
    first = planned(old, missing, accept_drift=accept_drift)
    entries, refused, unfit = dict(first.entries), list(first.drifts), []
    for key, new, leeway in known:
        made = with_evidence(old[key], new)
        if made is None:
            unfit.append(key)
        elif found := () if accept_drift else strays(key, old[key], made, leeway):
            refused += found
        else:
            anchors = anchors_of(old[key], leeway.kind)
            entries[key] = with_anchor(made, anchors, leeway.kind)
    return AcceptancePlan(entries=entries, drifts=tuple(refused), unfit=tuple(unfit))


def _differs(new: Entry) -> bool:
    """Whether the gate saw a change in it, so that noise does not explain it.

    If it were not stored, the next run would report it again.
    """
    return differs((new.judged or NO_RUN_JUDGED).outcomes)


def _with_stored_times(stored: Entry, new: Entry, leeway: Leeway) -> Entry | None:
    """Return *stored* with what the few runs of *new* prove; ``None`` if nothing.

    Counts and bytes of another torch do not belong with these times.
    """
    outcomes = (new.judged or NO_RUN_JUDGED).outcomes
    blamed = {name for name, found in outcomes.items() if CHANGED & set(found)}
    if not all(map(_is_exact, blamed)):
        return None
    if len(new.runs) < EXACT_RUNS or stored.software.get("torch") != new.software.get(
        "torch"
    ):
        return None
    fresh = with_exact_of(stored, new)
    return None if kept("", stored, fresh, leeway) and not blamed else fresh


def _is_exact(name: str) -> bool:
    return name in METRICS and METRICS[name].kind is MetricKind.EXACT


def _missed(
    plan: AcceptancePlan, pending: Baselines, choice: Choice
) -> tuple[str, ...]:
    """Return what *plan* leaves out for its few runs although it was to be accepted.

    That is what changed, and what *choice* names. If nothing else is taken it is all.
    """
    if not plan.entries and not plan.kept and not plan.drifts:
        return plan.thin
    return tuple(
        key for key in plan.thin if key in choice.only or _differs(pending.entries[key])
    )


def acceptance(pending: Baselines, old: Baselines, choice: Choice) -> AcceptancePlan:
    """Say what accepting the *choice* of *pending* would do to the *old* baselines."""
    measured, adds = _measured(pending, old, choice), Refresh.EVIDENCE in choice.kinds
    # Below so many runs an entry blames nothing.
    enough = min(ENOUGH_RUNS, full_runs(pending.hardware.kind))
    drifts = choice.accept_drift
    plan = (
        with_evidence_of(old.entries, measured, accept_drift=drifts)
        if adds
        else planned(old.entries, measured, accept_drift=drifts, enough=enough)
    )
    missed = _missed(plan, pending, choice)
    return replace(plan, missed=missed, adds=adds, enough=enough)


def stored_changes(
    folder: Path,
    old: Baselines,
    entries: Mapping[str, Entry],
    removed: Collection[str] = (),
    *,
    lock_folder: Path,
) -> tuple[BaselineChange, ...]:
    """Add *entries* to the *old* ones, without those *removed*, and say what changed.

    Raises ``BaselineError`` if that cannot be written.
    """
    if not (entries or removed or old.is_old):
        return ()
    update(folder, old.hardware, entries, removed, lock_folder=lock_folder)
    return changes_by(old, entries, removed)


def changes_by(
    old: Baselines, entries: Mapping[str, Entry], removed: Collection[str] = ()
) -> tuple[BaselineChange, ...]:
    """Say what *entries* change in the *old* ones, and going without those *removed*."""
    touched = {*entries, *removed}
    before = {key: entry for key, entry in old.entries.items() if key in touched}
    return changes(
        Baselines(hardware=old.hardware, entries=before),
        Baselines(hardware=old.hardware, entries=entries),
    )


def chosen(pending: Baselines, old: Baselines, choice: Choice) -> dict[str, Entry]:
    """Return the entries of *pending* that *choice* means, given the *old* ones."""
    return {
        key: entry
        for key, entry in sorted(pending.entries.items())
        if choice.names(key)
        and any(
            takes(
                which,
                (entry.judged or NO_RUN_JUDGED).outcomes,
                old.entries.get(key),
                entry.runs,
            )
            for which in choice.kinds
        )
    }


def _measured(pending: Baselines, old: Baselines, choice: Choice) -> Iterator[Measured]:
    kind = pending.hardware.kind
    prior = prior_of(old.entries.values(), kind)
    for key, entry in chosen(pending, old, choice).items():
        leeway = Leeway(
            kind=kind,
            tolerance=(entry.judged or NO_RUN_JUDGED).tolerance,
            prior=prior,
            runs=min(full_runs(kind), len(entry.runs)),
        )
        yield key, replace(entry, anchor={}), leeway


def _is_named(key: str, name: str) -> bool:
    """Whether *name* means *key*; its brackets are of a parameter, not of a pattern."""
    return (
        key == name
        or key.startswith(tuple(f"{name}{sign}" for sign in BELOW))
        or fnmatchcase(key, name.replace("[", "[[]"))
    )
