"""What it takes to see as little as somebody asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Runs of one test that show a slowdown of the precision asked for.

    So many ``stored`` and ``fresh`` runs are enough if it is ``reached``; else they are
    what is usual. ``floor`` is the smallest slowdown, a ratio, that any number of runs
    would show with a probability of 90 %.
    """

    stored: int
    fresh: int
    reached: bool
    floor: float
