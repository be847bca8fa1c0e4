"""How many tests are drawn, and where progress is told."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Sizes of the samples. ``hurried`` ones leave their bars simulation error.

    ``unchanged`` tests are drawn a profile; ``power`` of them are slowed by 5 % as
    well, ``slowed`` of them by all else, and ``peers`` are shown to the peers.
    ``recorded`` tests are drawn a workload, a fourth of them slowed; ``series`` of
    quads and ``pairs`` a profile and slowdown, ``suites`` a profile, ``days`` tests a
    shift and number of occasions, a twentieth of them slowed. What is timed is timed
    in so many ``attempts``.
    """

    hurried: bool
    unchanged: int
    power: int
    slowed: int
    peers: int
    recorded: int
    series: int
    pairs: int
    suites: int
    days: int
    attempts: int


FULL: Final = Effort(
    hurried=False,
    unchanged=200_000,
    power=200_000,
    slowed=10_000,
    peers=20_000,
    recorded=20_000,
    series=200,
    pairs=20_000,
    suites=1000,
    days=20_000,
    attempts=7,
)

QUICK: Final = Effort(
    hurried=True,
    unchanged=4000,
    power=1000,
    slowed=700,
    peers=1000,
    recorded=500,
    series=16,
    pairs=1000,
    suites=24,
    days=1000,
    attempts=3,
)


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)
