"""What ranks tell each other while they measure together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TypeVar


T = TypeVar("T")


class Peers(Protocol):
    """All ranks, this one among them. Every rank must ask the same at the same time."""

    @property
    def count(self) -> int:
        """How many they are."""

    def integers(self, values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return what each rank gave, by rank: as many as this one gives."""

    def objects(self, value: T) -> tuple[T, ...]:
        """Return what each rank gave, by rank."""


class TorchPeers:
    """Ranks of the process group, through a gloo group that no test knows of.

    On that group the collectives of a test and ours cannot meet, nor does a GPU work
    for us.
    """

    def __init__(self) -> None:
        from torch import distributed

        self._group: Any = distributed.new_group(backend="gloo")
        self.count = int(distributed.get_world_size())

    def integers(self, values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        import torch
        from torch import distributed

        own = torch.tensor(values, dtype=torch.int64, device="cpu")
        seen = [torch.empty_like(own) for _ in range(self.count)]
        distributed.all_gather(seen, own, group=self._group)
        return tuple(tuple(one.tolist()) for one in seen)

    def objects(self, value: T) -> tuple[T, ...]:
        from torch import distributed

        seen: list[Any] = [None] * self.count
        distributed.all_gather_object(seen, value, group=self._group)
        return tuple(seen)
