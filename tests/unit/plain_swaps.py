"""Label swaps one after the other, in Python: what the product's are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuperf.judge.interleaved import Labels, Pool, Quad, SwapCounts, counts


def plain_swaps(quads: Sequence[Quad], shift: float, labels: Labels) -> SwapCounts:
    """Count one draw after the other, in Python: the reference."""
    pool = Pool.of(quads, shift)
    differences = [pool.difference(coins) for coins in labels]
    return counts(differences, pool.difference(bytes(len(quads))))
