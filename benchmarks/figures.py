"""What a benchmark measured, beside its bar, and how many tests it draws."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final


SIGMAS: Final = 4.0
"""Standard errors by which a share may miss its bar where it was drawn in a hurry."""

_COLUMNS: Final = ("figure", "measured", "bar", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many."""

    count: int
    total: int

    @property
    def value(self) -> float:
        return self.count / self.total

    def __str__(self) -> str:
        return f"{percent(self.value)} ({self.count:,} of {self.total:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a table; ``met`` is ``None`` where there is no bar to meet."""

    name: str
    measured: str
    bar: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        met = {None: "", True: "met", False: "NOT MET"}[self.met]
        return self.name, self.measured, self.bar, met


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All figures of one bar."""

    title: str
    figures: Sequence[Figure]

    @property
    def missed(self) -> tuple[Figure, ...]:
        return tuple(figure for figure in self.figures if figure.met is False)

    def __str__(self) -> str:
        rows = [_COLUMNS, *(figure.cells for figure in self.figures)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))
            for row in rows
        ]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        body = "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])
        return f"{self.title}\n\n{body}\n"


def at_most(name: str, share: Share, bar: float, *, hurried: bool) -> Figure:
    """Return a figure that is met up to *bar*, if *hurried* plus simulation error."""
    limit = bar + (_error(bar, share.total) if hurried else 0.0)
    return _barred(name, share, f"<= {percent(bar)}", limit - bar, share.value <= limit)


def at_least(name: str, share: Share, bar: float, *, hurried: bool) -> Figure:
    """Return a figure that is met from *bar* on, if *hurried* less simulation error."""
    limit = bar - (_error(bar, share.total) if hurried else 0.0)
    return _barred(name, share, f">= {percent(bar)}", limit - bar, share.value >= limit)


def _barred(name: str, share: Share, bar: str, allowed: float, met: bool) -> Figure:  # noqa: FBT001
    if allowed:
        bar += f" {'+' if allowed > 0 else '-'} {percent(abs(allowed))}"
    return Figure(name=name, measured=str(share), bar=bar, met=met)


def beside(name: str, share: Share) -> Figure:
    """Return a figure that has no bar."""
    return Figure(name=name, measured=str(share))


def percent(share: float) -> str:
    """Write *share* with two digits behind the point, one from 10 % on."""
    digits = 1 if abs(share) >= 0.1 else 3 if 0 < abs(share) < 0.001 else 2
    return f"{100 * share:.{digits}f} %"


def changed(slowdown: float) -> str:
    """Write a slowdown as in ``+5 %``."""
    return f"{100 * slowdown:+.0f} %"


def _error(share: float, total: int) -> float:
    return SIGMAS * sqrt(share * (1 - share) / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Sizes of the samples. ``hurried`` ones leave their bars simulation error.

    ``unchanged`` tests are drawn a profile; ``power`` of them are slowed by 5 % as
    well, ``slowed`` of them by all else, and ``peers`` are shown to the peers.
    ``recorded`` tests are drawn a workload, a fourth of them slowed, ``pairs`` a
    workload, ``suites`` a profile, ``days`` tests a shift and number of occasions, a
    twentieth of them slowed.
    """

    hurried: bool
    unchanged: int
    power: int
    slowed: int
    peers: int
    recorded: int
    pairs: int
    suites: int
    days: int


FULL: Final = Effort(
    hurried=False,
    unchanged=200_000,
    power=200_000,
    slowed=10_000,
    peers=20_000,
    recorded=20_000,
    pairs=20_000,
    suites=1000,
    days=20_000,
)

QUICK: Final = Effort(
    hurried=True,
    unchanged=4000,
    power=1000,
    slowed=700,
    peers=1000,
    recorded=500,
    pairs=1000,
    suites=24,
    days=1000,
)


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)
