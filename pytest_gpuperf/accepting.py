"""Which measured entries become baselines: those that moved, unless they drifted too far."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from .baselines.refresh import Change
from .baselines.refresh import changes
from .baselines.refresh import takes
from .baselines.store import update
from .creep import Leeway
from .creep import anchored
from .creep import drifts
from .creep import kept
from .judging import prior_of
from .model.baseline import ENOUGH_RUNS
from .model.baseline import Baselines
from .model.baseline import Entry
from .model.baseline import Judged
from .model.baseline import full_runs
from .model.refresh import Drift
from .model.refresh import Kept
from .model.refresh import Refresh


Measured = tuple[str, Entry, Leeway]
"""A call, what was measured of it, without an anchor yet, and what it may move."""

UNJUDGED: Final = Judged()
"""Of an entry of which no run said anything."""

BELOW: Final = ("[", "::", "#", "/")
"""What follows the name of a file, class or test in the key of an entry below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is written, what is left alone and what is refused.

    ``thin`` are entries that would replace one of enough runs by one of too few.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    thin: tuple[str, ...] = ()

    @property
    def drifted(self) -> tuple[str, ...]:
        """The calls that are refused because of drift."""
        return tuple(dict.fromkeys(drift.test for drift in self.drifts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which entries of a pending file to accept: of these kinds, of these names.

    A name is that of a test or of what it stands in, or a pattern with ``*`` and ``?``;
    without any every test is meant.
    """

    kinds: tuple[Refresh, ...] = (Refresh.ALL,)
    only: tuple[str, ...] = ()
    accept_drift: bool = False

    def names(self, key: str) -> bool:
        """Whether the entry *key* is meant."""
        return not self.only or any(_is_named(key, name) for name in self.only)


def planned(
    old: Mapping[str, Entry],
    measured: Iterable[Measured],
    *,
    accept_drift: bool,
    enough: int = 1,
) -> Plan:
    """Divide what was *measured* by how it moved since the *old* baselines.

    An entry of *enough* runs is not given up for one of fewer.
    """
    alike: list[Kept] = []
    refused: list[Drift] = []
    thin: list[str] = []
    entries: dict[str, Entry] = {}
    for key, new, leeway in measured:
        stored = old.get(key)
        unmoved = kept(key, stored, new, leeway)
        drifted = () if accept_drift else drifts(key, stored, new, leeway)
        if unmoved:
            alike.append(unmoved)
        elif stored is not None and len(new.runs) < enough <= len(stored.runs):
            thin.append(key)
        elif drifted:
            refused += drifted
        else:
            entries[key] = anchored(stored, new, leeway, accept_drift=accept_drift)
    return Plan(
        entries=entries, kept=tuple(alike), drifts=tuple(refused), thin=tuple(thin)
    )


def acceptance(pending: Baselines, old: Baselines, choice: Choice) -> Plan:
    """Say what accepting the *choice* of *pending* would do to the *old* baselines."""
    return planned(
        old.entries,
        _measured(pending, old, choice),
        accept_drift=choice.accept_drift,
        enough=enough_runs(pending),
    )


def enough_runs(baselines: Baselines) -> int:
    """Return the runs without which an entry blames nobody."""
    return min(ENOUGH_RUNS, full_runs(baselines.hardware.kind))


def stored_changes(
    folder: Path,
    old: Baselines,
    entries: Mapping[str, Entry],
    removed: Collection[str] = (),
    *,
    lock_folder: Path,
) -> tuple[Change, ...]:
    """Write *entries* beside the *old* ones, without those *removed*, and say what changed.

    Raises ``BaselineError`` where that cannot be written.
    """
    if not entries and not removed:
        return ()
    update(folder, old.hardware, entries, removed, lock_folder=lock_folder)
    touched = {*entries, *removed}
    before = {key: entry for key, entry in old.entries.items() if key in touched}
    return changes(
        Baselines(hardware=old.hardware, entries=before),
        Baselines(hardware=old.hardware, entries=entries),
    )


def chosen(pending: Baselines, old: Baselines, choice: Choice) -> dict[str, Entry]:
    """Return the entries of *pending* that *choice* means, beside the *old* ones."""
    kind = pending.hardware.kind
    return {
        key: entry
        for key, entry in sorted(pending.entries.items())
        if choice.names(key)
        and any(
            takes(
                which,
                (entry.judged or UNJUDGED).outcomes,
                old.entries.get(key),
                entry.runs,
                kind,
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
            tolerance=(entry.judged or UNJUDGED).tolerance,
            prior=prior,
            runs=min(full_runs(kind), len(entry.runs)),
        )
        yield key, replace(entry, anchor={}, judged=None), leeway


def _is_named(key: str, name: str) -> bool:
    """Brackets are those of a parameter, and not of a pattern."""
    return (
        key == name
        or key.startswith(tuple(f"{name}{sign}" for sign in BELOW))
        or fnmatchcase(key, name.replace("[", "[[]"))
    )
