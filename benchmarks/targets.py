"""Shares that an independent implementation of the same procedures came to.

It was written before the product, in another form, and drew its own noise from the
same profiles. Its shares are the truth up to what so many tests scatter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import pstdev
from typing import Final

from figures import SIGMAS
from figures import Figure
from figures import Share
from order_of_work import Tally

from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Percentages of the ends of so many tests, and the mean of what each took.

    ``rounded`` is half a unit of the last digit of that mean.
    """

    tests: int
    percents: Mapping[Outcome | Answer, float]
    units: float
    rounded: float


def _stored(
    passed: float, regressed: float, improved: float, inconclusive: float, runs: float
) -> Target:
    percents = {
        Outcome.PASS: passed,
        Outcome.REGRESSED: regressed,
        Outcome.IMPROVED: improved,
        Outcome.INCONCLUSIVE: inconclusive,
    }
    return Target(tests=3000, percents=percents, units=runs, rounded=0.005)


def _compared(  # noqa: PLR0913  the columns of the tables below
    tests: int,
    same: float,
    slower: float,
    inconclusive: float,
    units: float,
    *,
    rounded: float,
) -> Target:
    percents = {
        Answer.SAME: same,
        Answer.SLOWER: slower,
        Answer.FASTER: 0.0,
        Answer.INCONCLUSIVE: inconclusive,
    }
    return Target(tests=tests, percents=percents, units=units, rounded=rounded)


STORED: Final = {
    ("locked", 0.00): _stored(100.00, 0.00, 0.00, 0.00, 1.00),
    ("locked", 0.02): _stored(97.07, 0.23, 0.00, 2.70, 1.15),
    ("locked", 0.03): _stored(2.50, 95.60, 0.00, 1.90, 4.91),
    ("locked", 0.05): _stored(0.00, 100.00, 0.00, 0.00, 5.00),
    ("locked", 0.10): _stored(0.00, 100.00, 0.00, 0.00, 5.00),
    ("locked", -0.05): _stored(0.00, 0.00, 100.00, 0.00, 5.00),
    ("boost", 0.00): _stored(94.93, 0.00, 0.00, 5.07, 1.34),
    ("boost", 0.02): _stored(40.47, 5.90, 0.00, 53.63, 3.70),
    ("boost", 0.03): _stored(5.67, 42.83, 0.00, 51.50, 4.80),
    ("boost", 0.05): _stored(0.00, 91.20, 0.00, 8.80, 5.00),
    ("boost", 0.10): _stored(0.00, 100.00, 0.00, 0.00, 5.00),
    ("boost", -0.05): _stored(13.53, 0.00, 86.47, 0.00, 4.79),
    ("shared", 0.00): _stored(31.47, 0.03, 0.00, 68.50, 3.98),
    ("shared", 0.02): _stored(9.20, 0.57, 0.00, 90.23, 4.68),
    ("shared", 0.03): _stored(4.17, 1.87, 0.00, 93.97, 4.85),
    ("shared", 0.05): _stored(0.47, 13.57, 0.00, 85.97, 4.98),
    ("shared", 0.10): _stored(0.00, 62.40, 0.00, 37.60, 5.00),
    ("shared", -0.05): _stored(74.83, 0.00, 9.27, 15.90, 2.90),
}
"""Tests against 8 stored runs, by profile and slowdown."""

QUADS: Final = {
    ("locked", 0.00): _compared(40, 100.0, 0.0, 0.0, 14.0, rounded=0.125),
    ("locked", 0.02): _compared(40, 15.0, 85.0, 0.0, 14.0, rounded=0.125),
    ("locked", 0.03): _compared(40, 0.0, 100.0, 0.0, 16.0, rounded=0.125),
    ("locked", 0.05): _compared(40, 0.0, 100.0, 0.0, 16.0, rounded=0.125),
    ("boost", 0.00): _compared(40, 100.0, 0.0, 0.0, 14.0, rounded=0.125),
    ("boost", 0.02): _compared(40, 72.5, 27.5, 0.0, 14.25, rounded=0.125),
    ("boost", 0.03): _compared(40, 0.0, 100.0, 0.0, 17.75, rounded=0.125),
    ("boost", 0.05): _compared(40, 0.0, 100.0, 0.0, 16.75, rounded=0.125),
    ("shared", 0.00): _compared(40, 100.0, 0.0, 0.0, 14.75, rounded=0.125),
    ("shared", 0.02): _compared(40, 92.5, 7.5, 0.0, 43.5, rounded=0.125),
    ("shared", 0.03): _compared(40, 10.0, 90.0, 0.0, 44.75, rounded=0.125),
    ("shared", 0.05): _compared(40, 0.0, 100.0, 0.0, 21.75, rounded=0.125),
}
"""Comparisons of at most 112 quads, by profile and slowdown."""

PAIRS: Final = {
    (0.0017, 0.00): _compared(2000, 100.0, 0.0, 0.0, 3.0, rounded=0.05),
    (0.0017, 0.02): _compared(2000, 98.6, 1.4, 0.0, 3.0, rounded=0.05),
    (0.0017, 0.03): _compared(2000, 0.0, 100.0, 0.0, 5.0, rounded=0.05),
    (0.0017, 0.05): _compared(2000, 0.0, 100.0, 0.0, 5.0, rounded=0.05),
    (0.0040, 0.00): _compared(2000, 100.0, 0.0, 0.0, 3.0, rounded=0.05),
    (0.0040, 0.02): _compared(2000, 89.8, 9.6, 0.6, 3.4, rounded=0.05),
    (0.0040, 0.03): _compared(2000, 0.4, 98.9, 0.7, 5.1, rounded=0.05),
    (0.0040, 0.05): _compared(2000, 0.0, 100.0, 0.0, 5.1, rounded=0.05),
    (0.0100, 0.00): _compared(2000, 99.0, 0.0, 1.0, 3.4, rounded=0.05),
    (0.0100, 0.02): _compared(2000, 72.5, 15.2, 12.2, 5.5, rounded=0.05),
    (0.0100, 0.03): _compared(2000, 6.2, 81.3, 12.5, 6.9, rounded=0.05),
    (0.0100, 0.05): _compared(2000, 0.0, 98.7, 1.4, 5.7, rounded=0.05),
}
"""Pairs of processes, by their standard deviation and slowdown.

Their mean is the product's own where most are slower: it confirms that by five pairs at
least, which the independent implementation (3.0 to 6.3 pairs) did not.
"""

SUITES: Final = 60
SUITE_POWER: Final = {"boost": 82.0, "shared": 1.0}
SUITE_UNDECIDED: Final = {"boost": 2.1, "shared": 69.0}
SUITE_RUNS: Final = {"boost": 1.49, "shared": 4.09}
"""Suites of 40 tests, three of them 5 % slower: percentages of those, and of the rest."""


def against(name: str, target: Target, ours: Tally, unit: str) -> Figure:
    """Compare the share of every end, and that no more *unit* were needed."""
    beyond = [
        end.value
        for end, percents in target.percents.items()
        if not agrees(ours.share(end), _share(percents, target.tests))
    ]
    if not _as_few(target, ours):
        beyond.append(unit)
    percents = {end: 100 * ours.share(end).value for end in target.percents}
    named = f"  beyond: {', '.join(beyond)}" if beyond else ""
    return Figure(
        name=name,
        measured=_cells(percents, ours.mean_units) + named,
        bar=_cells(target.percents, target.units),
        met=not beyond,
    )


def agrees(ours: Share, theirs: Share) -> bool:
    """Whether two shares differ by no more than four standard errors of both samples."""
    pooled = (ours.count + theirs.count) / (ours.total + theirs.total)
    error = sqrt(pooled * (1 - pooled) * (1 / ours.total + 1 / theirs.total))
    return abs(ours.value - theirs.value) <= SIGMAS * error


def _share(percents: float, tests: int) -> Share:
    return Share(count=round(percents * tests / 100), total=tests)


def _as_few(target: Target, ours: Tally) -> bool:
    scatter = pstdev(ours.units)
    error = scatter * sqrt(1 / len(ours.units) + 1 / target.tests)
    return ours.mean_units <= target.units + target.rounded + SIGMAS * error


def _cells(percents: Mapping[Outcome | Answer, float], units: float) -> str:
    shares = " ".join(f"{share:6.2f}" for share in percents.values())
    return f"{shares}  {units:6.2f}"
