"""Two branches' baselines as one, test by test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.baseline import Baselines
from ..model.baseline import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What both sides come to; of the tests in ``conflicts`` it holds our side."""

    baselines: Baselines
    conflicts: tuple[str, ...] = ()


def join(
    ancestor: Mapping[str, Entry], ours: Baselines, theirs: Mapping[str, Entry]
) -> Joined:
    """Take over each entry that one side alone changed, added or removed.

    Where both did, and not alike, nobody can say what the merged code takes.
    """
    entries: dict[str, Entry] = {}
    conflicts: list[str] = []
    for test in sorted({*ancestor, *ours.entries, *theirs}):
        base, mine, other = ancestor.get(test), ours.entries.get(test), theirs.get(test)
        if mine != other and base not in (mine, other):
            conflicts.append(test)
        taken = other if mine == base else mine
        if taken is not None:
            entries[test] = taken
    merged = Baselines(hardware=ours.hardware, entries=entries)
    return Joined(baselines=merged, conflicts=tuple(conflicts))
