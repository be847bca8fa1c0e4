"""Label swaps: what the difference of two steps would be if their names meant nothing.

A quad is four blocks in the order ABBA or BAAB, drawn at random. If the two steps take
the same time, it could as well have been the other order: swapping the labels of any
set of quads gives a difference that was just as likely.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from itertools import product
from random import Random
from typing import Final
from typing import Protocol


Quad = tuple[float, float, float, float]
"""Logarithms of a step's time in four blocks: before, after, after, before."""

TIE: Final = 1e-12
"""Differences of logarithms closer than this are equal: it is rounding."""

_IS_AFTER: Final = (0, 1, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which quads are swapped in each of ``draws`` label swaps.

    The coin of quad ``q`` in draw ``d`` is the lowest bit of ``coins[d * quads + q]``.
    ``complete`` says that every possible swap is there once.
    """

    quads: int
    draws: int
    coins: bytes
    complete: bool = False

    @classmethod
    def drawn(cls, quads: int, draws: int, seed: int) -> Labels:
        """Draw *draws* swaps, the same for the same *seed* and number of *quads*."""
        random = Random(f"{seed} {quads}")  # noqa: S311, a reproducible draw
        return cls(quads=quads, draws=draws, coins=random.randbytes(draws * quads))

    @classmethod
    @lru_cache(maxsize=2)
    def every(cls, quads: int) -> Labels:
        """All ``2 ** quads`` swaps, the one that swaps nothing included."""
        coins = bytes(chain.from_iterable(product((0, 1), repeat=quads)))
        return cls(quads=quads, draws=2**quads, coins=coins, complete=True)

    def __iter__(self) -> Iterator[bytes]:
        """Coins of one draw after another."""
        for start in range(0, self.draws * self.quads, self.quads):
            yield self.coins[start : start + self.quads]

    def share(self, count: int) -> float:
        """P-value of an outcome that *count* of the draws share.

        Of a sample, what was observed is one draw more (Phipson and Smyth 2010,
        doi 10.2202/1544-6115.1585): no p-value is 0.
        """
        return count / self.draws if self.complete else (1 + count) / (1 + self.draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of all draws, those whose difference is at least or at most the observed one."""

    at_least: int
    at_most: int


class Swaps(Protocol):
    """Counts label swaps; every implementation gives the same counts."""

    def count(self, quads: Sequence[Quad], shift: float, labels: Labels) -> Counts:
        """Count after taking *shift* from each logarithm of ``after``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All blocks in ascending order: value, its quad, and 1 where it is of ``after``."""

    values: tuple[float, ...]
    owners: tuple[int, ...]
    sides: tuple[int, ...]

    @classmethod
    def of(cls, quads: Sequence[Quad], shift: float) -> Pool:
        blocks = sorted(
            (value - shift if after else value, owner, after)
            for owner, quad in enumerate(quads)
            for value, after in zip(quad, _IS_AFTER, strict=True)
        )
        values, owners, sides = zip(*blocks, strict=True)
        return cls(values=values, owners=owners, sides=sides)

    @property
    def rank(self) -> int:
        """Position of the lower quartile among the blocks of one side, from 0."""
        return len(self.values) // 8

    def difference(self, coins: bytes) -> float:
        """Lower quartile of ``after`` minus that of ``before`` under *coins*."""
        found = [0.0, 0.0]
        waiting = [self.rank, self.rank]
        for value, owner, side in zip(
            self.values, self.owners, self.sides, strict=True
        ):
            label = side ^ (coins[owner] & 1)
            if waiting[label] == 0:
                found[label] = value
                if waiting[1 - label] < 0:
                    break
            waiting[label] -= 1
        return found[1] - found[0]


class PlainSwaps:
    """The reference: one draw after the other, in Python."""

    def count(self, quads: Sequence[Quad], shift: float, labels: Labels) -> Counts:
        """Count after taking *shift* from each logarithm of ``after``."""
        pool = Pool.of(quads, shift)
        differences = [pool.difference(coins) for coins in labels]
        return counts(differences, pool.difference(bytes(len(quads))))


def counts(differences: Iterable[float], observed: float) -> Counts:
    """Compare each of *differences* with the *observed* one; equal ones count twice."""
    gaps = [difference - observed for difference in differences]
    return Counts(
        at_least=sum(gap >= -TIE for gap in gaps),
        at_most=sum(gap <= TIE for gap in gaps),
    )


def difference(quads: Sequence[Quad]) -> float:
    """Lower quartile of ``after`` minus that of ``before``: order statistics.

    Without interpolation a quartile is one of the blocks, and label swaps of n quads
    are compared without rounding.
    """
    return Pool.of(quads, 0.0).difference(bytes(len(quads)))


def quartiles(quads: Sequence[Quad]) -> tuple[float, float]:
    """Lower quartiles of ``before`` and ``after``."""
    before = sorted(value for quad in quads for value in (quad[0], quad[3]))
    after = sorted(value for quad in quads for value in (quad[1], quad[2]))
    rank = len(quads) // 2
    return before[rank], after[rank]
