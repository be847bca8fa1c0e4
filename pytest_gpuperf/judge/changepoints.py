"""Finds where a series of runs changed its level, and by how much.

Of noisy values only their order counts, as normal scores (van der Waerden 1952): no run
that went wild makes a change, and what unchanged code shows does not depend on how its
noise is distributed, as long as one run knows nothing of the next. A change is looked
for in intervals of many lengths, so that one that was soon undone does not hide behind
its opposite: the seeded intervals of Kovács, Bühlmann, Li and Munk (2023,
doi 10.1093/biomet/asac052). Of those that show one the narrowest is taken, which has
no second one (Baranowski, Chen and Fryzlewicz 2019, doi 10.1111/rssb.12322).

Exact values change when they are another one and stay that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from itertools import pairwise
from math import ceil
from math import log
from math import log2
from math import sqrt
from statistics import NormalDist
from statistics import median
from typing import Final
from typing import NamedTuple

from ..model.history import Shift
from ..model.metric import Metric
from ..model.metric import MetricKind
from ..model.metrics import STEP_MS


LEAST_SEARCHED_RUNS: Final = 5
"""Runs on either side of a change, without which nothing is said of noisy values."""

MOST_RUNS_SEARCHED: Final = 1000
"""Runs that can be looked at together."""

THRESHOLDS: Final = (
    (10, 2.49),
    (12, 2.71),
    (15, 2.86),
    (20, 3.00),
    (25, 3.17),
    (30, 3.24),
    (40, 3.39),
    (50, 3.49),
    (70, 3.57),
    (100, 3.79),
    (150, 3.93),
    (200, 4.00),
    (300, 4.11),
    (500, 4.27),
    (1000, 4.47),
)
"""Per length of a series what the statistic reaches in one of 200 without a change.

Simulated by ``tools/change_thresholds.py``, 8,000 series a length; between two lengths
it is interpolated over their logarithms.
"""

RESTLESS: Final = 4
"""One change in so many exact values and more is noise."""


class LargestChange(NamedTuple):
    """The largest statistic of an interval, and the point at which it is reached."""

    height: float
    start: int
    at: int
    end: int


UNGATED_CHANGE: Final = {MetricKind.NOISY: STEP_MS.tolerance, MetricKind.EXACT: 0.0}
"""Changes, as ratios, that are not worth a word where no tolerance says so."""


def level_changes(metric: Metric, values: Sequence[float]) -> tuple[Shift, ...]:
    """Return where the level of a *metric* changed by as much as is worth a word."""
    return shifts(
        values,
        exact=metric.kind is MetricKind.EXACT,
        least=metric.tolerance if metric.gated else UNGATED_CHANGE[metric.kind],
        floor=metric.floor,
    )


def shifts(
    values: Sequence[float], *, exact: bool, least: float, floor: float = 0.0
) -> tuple[Shift, ...]:
    """Find the changes of level in *values*, oldest first.

    Each exceeds *least*, a ratio, and *floor*, in the unit of the values. Raises
    ``ValueError`` for more than ``MOST_RUNS_SEARCHED`` values.
    """
    if len(values) > MOST_RUNS_SEARCHED:
        msg = f"expected at most {MOST_RUNS_SEARCHED} values, found {len(values)}"
        raise ValueError(msg)
    if len(values) < 2:  # noqa: PLR2004  to differ
        return ()
    steps = _steps(values) if exact else None
    found = _noisy_changes(values) if steps is None else steps
    while True:
        levels = _levels(values, found)
        small = [
            s for s in levels if _size(s) <= least or abs(s.after - s.before) <= floor
        ]
        if not small:
            return levels
        # Only the smallest: without it the levels beside it are longer, and another
        # change that was too small may be large enough.
        found.remove(min(small, key=_size).at)


def _levels(values: Sequence[float], changes: Sequence[int]) -> tuple[Shift, ...]:
    ends = [0, *changes, len(values)]
    levels = [median(values[a:b]) for a, b in pairwise(ends)]
    return tuple(
        Shift(at=at, before=before, after=after)
        for at, before, after in zip(changes, levels, levels[1:], strict=False)
    )


def _size(shift: Shift) -> float:
    if shift.before == shift.after:
        return 0.0
    return abs(shift.after - shift.before) / (abs(shift.before) or abs(shift.after))


def _steps(values: Sequence[float]) -> list[int] | None:
    """Return where an exact value changed for good; ``None`` if it never settles.

    One run that differs between equal ones is no change.
    """
    calm = list(values)
    for i in range(1, len(calm) - 1):
        # One run that differs between two equal ones is an outlier, not two changes.
        if calm[i - 1] == calm[i + 1]:
            calm[i] = calm[i - 1]
    lengths = [len(list(group)) for _, group in groupby(calm)]
    if RESTLESS * (len(lengths) - 1) > len(calm) > 2 * LEAST_SEARCHED_RUNS:
        return None
    return [sum(lengths[:i]) for i in range(1, len(lengths))]


def _noisy_changes(values: Sequence[float]) -> list[int]:
    if len(values) < 2 * LEAST_SEARCHED_RUNS:
        return []
    # Computed once for all parts: the intervals inside a part are among them.
    all_of_it = [highest(values, *interval) for interval in seeded(len(values))]
    limit = threshold(len(values))
    changes = sorted(_split(values, all_of_it, 0, len(values), limit))
    return _settled(values, changes)


def _split(
    values: Sequence[float],
    known: Sequence[LargestChange],
    start: int,
    end: int,
    limit: float,
) -> Iterator[int]:
    """Find the changes from *start* to before *end*, by intervals that lie there."""
    if end - start < 2 * LEAST_SEARCHED_RUNS:
        return
    inside = [found for found in known if start <= found.start and found.end <= end]
    above = [f for f in (*inside, highest(values, start, end)) if f.height > limit]
    if not above:
        return
    # The narrowest interval first: a wide one may contain two changes, and its best
    # split may lie between them.
    best = min(above, key=lambda found: (found.end - found.start, -found.height))
    yield from _split(values, known, start, best.at, limit)
    yield best.at
    yield from _split(values, known, best.at, end, limit)


def _settled(values: Sequence[float], changes: Sequence[int]) -> list[int]:
    """Look at each change once more, with all that lies between its neighbours.

    One that is none there is dropped.
    """
    settled: list[int] = []
    for change, end in pairwise([*changes, len(values)]):
        start = settled[-1] if settled else 0
        if (
            min(change - start, end - change) < 1
            or end - start < 2 * LEAST_SEARCHED_RUNS
        ):
            continue
        found = highest(values, start, end)
        if found.height > threshold(end - start):
            settled.append(found.at)
    return settled


@lru_cache(maxsize=16)
def seeded(length: int) -> tuple[tuple[int, int], ...]:
    """Return the seeded intervals of a series, each half as long as those before it."""
    found: dict[tuple[int, int], None] = {}
    layers = max(1, ceil(log2(length / (2 * LEAST_SEARCHED_RUNS))) + 1)
    for layer in range(layers):
        size = length / 2**layer
        count = 2 ** (layer + 1) - 1
        shift = (length - size) / (count - 1) if count > 1 else 0.0
        for number in range(count):
            start, end = int(number * shift), ceil(number * shift + size - 1e-9)
            if end - start >= 2 * LEAST_SEARCHED_RUNS:
                found[start, min(end, length)] = None
    return tuple(found)


def highest(values: Sequence[float], start: int, end: int) -> LargestChange:
    """Return the change between *start* and *end* that is least like chance.

    Its height is the sum of the normal scores before it in standard deviations of a
    series in random order.
    """
    scores = normal_scores(values[start:end])
    length = end - start
    spread = sum(score * score for score in scores) / (length * (length - 1))
    if spread <= 0:
        return LargestChange(0.0, start, start + LEAST_SEARCHED_RUNS, end)
    best, at, total = -1.0, LEAST_SEARCHED_RUNS, 0.0
    for count, score in enumerate(scores[: length - LEAST_SEARCHED_RUNS], start=1):
        total += score
        if count >= LEAST_SEARCHED_RUNS:
            height = total * total / (count * (length - count))
            if height > best:
                best, at = height, count
    return LargestChange(sqrt(best / spread), start, start + at, end)


def normal_scores(values: Sequence[float]) -> list[float]:
    """Replace each value by what a normal one of its rank is expected to be.

    Of equal values each has the mean of their scores. They add up to zero.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    ranked = _expected(len(values))
    scores = [0.0] * len(values)
    start = 0
    for _, group in groupby(order, key=values.__getitem__):
        tied = list(group)
        end = start + len(tied)
        mean = sum(ranked[start:end]) / len(tied) if len(tied) > 1 else ranked[start]
        for index in tied:
            scores[index] = mean
        start = end
    return scores


@lru_cache(maxsize=MOST_RUNS_SEARCHED)
def _expected(count: int) -> tuple[float, ...]:
    """Blom's approximation (1958) of the expected order statistics of *count* normals."""
    quantile = NormalDist().inv_cdf
    half = [quantile((i + 0.625) / (count + 0.25)) for i in range(count // 2)]
    middle = [0.0] if count % 2 else []
    return (*half, *middle, *(-score for score in reversed(half)))


@lru_cache(maxsize=MOST_RUNS_SEARCHED)
def threshold(length: int) -> float:
    """Return what the statistic of a series without a change rarely exceeds."""
    lengths = [known for known, _ in THRESHOLDS]
    above = min(max(bisect_left(lengths, length), 1), len(lengths) - 1)
    (short, low), (long, high) = THRESHOLDS[above - 1], THRESHOLDS[above]
    share = (log(length) - log(short)) / (log(long) - log(short))
    return low + share * (high - low)
