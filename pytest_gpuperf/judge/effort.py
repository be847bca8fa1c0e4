"""How many runs it takes to see as little as somebody asks for.

More runs help less than one may think: what the fresh runs of one session have in common
does not shrink with their number, and the rank test asks something of each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import FULL_RUNS
from ..model.baseline import MOST_RUNS
from ..model.effort import Effort
from .acuity import completed
from .acuity import smallest_blamed
from .climate import Climate
from .reading import MAX_RUNS
from .reference import Limits
from .reference import Reference
from .spread import Spread
from .spread import ratio


MOST_DECIDING: Final = 20
"""Fresh runs beyond which none are made for a precision."""

FRESH_RUNS: Final = range(MAX_RUNS, MOST_DECIDING + 1)
STORED_RUNS: Final = range(FULL_RUNS, MOST_RUNS + 1)


def deciding_runs(reference: Reference, limits: Limits, climate: Climate) -> int:
    """Return the number of clean fresh runs after which a time may be blamed.

    Five, or the fewest that show a slowdown of the precision asked for; five as well
    where no number of them does.
    """
    if climate.precision is None or reference.runs < ENOUGH_RUNS:
        return MAX_RUNS
    shown = partial(shown_by, reference, limits, climate, reference.runs)
    return next((m for m in FRESH_RUNS if shown(m) <= climate.precision), MAX_RUNS)


def effort(
    reference: Reference,
    limits: Limits,
    climate: Climate,
    stored_runs: Iterable[int],
) -> Effort:
    """Choose the fewest fresh runs, then the fewest stored ones of *stored_runs*.

    Fresh runs are made again and again, stored ones once. *climate* has a precision.
    """
    options, precision = tuple(stored_runs), climate.precision or 0.0
    shown = partial(shown_by, reference, limits, climate)
    enough = (
        (stored, fresh)
        for fresh in FRESH_RUNS
        for stored in options
        if stored >= ENOUGH_RUNS and shown(stored, fresh) <= precision
    )
    found = next(enough, None)
    stored, fresh = found or (min(options), MAX_RUNS)
    return Effort(
        stored=stored,
        fresh=fresh,
        reached=found is not None,
        floor=min(shown(s, f) for s in STORED_RUNS for f in FRESH_RUNS),
    )


def shown_by(
    reference: Reference, limits: Limits, climate: Climate, stored: int, fresh: int
) -> float:
    """Return the slowdown, a ratio, that so many runs blame nine times in ten."""
    spread = _spread(reference, stored)
    smallest = smallest_blamed(spread, climate.risk, stored=stored, fresh=fresh)
    return ratio(limits.ignored + smallest)


def _spread(reference: Reference, stored: int) -> Spread:
    """Return what would be known of the scatter with so many *stored* runs."""
    if stored == reference.runs:
        return completed(reference)[0]
    known = reference.spread
    shared = known.nu - (reference.runs - 1) if reference.runs > 1 else 0.0
    return Spread(sigma=known.sigma, nu=shared + stored - 1)
