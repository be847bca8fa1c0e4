"""What is said of baselines whose tests are gone."""

from __future__ import annotations

from ..model.leftovers import Leftovers
from .counts import MOST_NAMES
from .numbers import join_fitting
from .terminal import Line
from .terminal import Role
from .wrapping import wrapped


def leftover_lines(found: Leftovers, baseline_file: str) -> tuple[Line, ...]:
    """Name what could be removed, or why nothing was; what was removed stands elsewhere."""
    if found.obstacle:
        return _warned(f"gpuperf: nothing was pruned: {found.obstacle}")
    if not found.entries or found.pruned:
        return ()
    number = len(found.entries)
    entries = "1 entry" if number == 1 else f"{number} entries"
    verb, them = ("has", "it") if number == 1 else ("have", "them")
    text = (
        f"gpuperf: {entries} of {baseline_file} {verb} no test any more, "
        f"--gpuperf-prune removes {them}: {join_fitting(found.entries, MOST_NAMES)}"
    )
    return _warned(text)


def _warned(text: str) -> tuple[Line, ...]:
    return tuple(Line(text=line, role=Role.WARN) for line in wrapped(text))
