"""Label swaps by the ten thousand, in torch.

All operations are ones that torch does in the calling thread: on a busy machine a
second thread that has to wait for its core costs thirty times what it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from typing import Final

from ..judge.swaps import TIE
from ..judge.swaps import Counts
from ..judge.swaps import Labels
from ..judge.swaps import Pool
from ..judge.swaps import Quad


CHECK_EVERY: Final = 16
"""Blocks between two looks at whether every draw has found its quartiles."""


class TorchSwaps:
    """Counts as ``PlainSwaps`` does, to the last bit, with all draws side by side."""

    def count(self, quads: Sequence[Quad], shift: float, labels: Labels) -> Counts:
        """Count after taking *shift* from each logarithm of ``after``."""
        import torch

        pool = Pool.of(quads, shift)
        before, after = _positions(torch, pool, _coins(labels))
        values = torch.tensor(pool.values, dtype=torch.float64, device="cpu")
        differences = values.index_select(0, after.int())
        differences -= values.index_select(0, before.int())
        gaps = differences - pool.difference(bytes(len(quads)))
        return Counts(
            at_least=int((gaps >= -TIE).sum()), at_most=int((gaps <= TIE).sum())
        )


def _positions(torch: Any, pool: Pool, coins: Any) -> tuple[Any, Any]:
    """Where in the pool each draw has the quartiles of ``before`` and ``after``.

    Walks up the pool once for all draws; it ends where the last of them has both.
    """
    # Four small tensors, because one large one is filled by several threads.
    before_seen, after_seen, before_at, after_at = (
        torch.zeros(coins.shape[1], dtype=torch.int16, device="cpu") for _ in range(4)
    )
    for position, (owner, side) in enumerate(
        zip(pool.owners, pool.sides, strict=True), start=1
    ):
        after_seen += coins[owner] ^ side
        before_seen.fill_(position).sub_(after_seen)
        before_at += before_seen <= pool.rank
        after_at += after_seen <= pool.rank
        if position % CHECK_EVERY == 0:
            fewest = torch.minimum(before_seen, after_seen).min()
            if fewest > pool.rank:
                break
    return before_at, after_at


@lru_cache(maxsize=2)
def _coins(labels: Labels) -> Any:
    """Coins as 0 and 1, a row a quad and a column a draw."""
    import torch

    coins = torch.frombuffer(bytearray(labels.coins), dtype=torch.uint8)
    return (coins.view(labels.draws, labels.quads) & 1).t().contiguous()
