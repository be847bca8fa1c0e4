"""Ranks that are threads of one process, for what they agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar


T = TypeVar("T")

PATIENCE_SECONDS = 600.0


class Threads:
    """What ``count`` threads tell each other; one that is missing breaks them all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.said: list[Any] = [None] * count
        self.barrier = Barrier(count, timeout=PATIENCE_SECONDS)


class ThreadPeers:
    """One of them."""

    def __init__(self, threads: Threads, rank: int) -> None:
        self._threads = threads
        self._rank = rank
        self.count = threads.count

    def integers(self, values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        return self.objects(tuple(values))

    def objects(self, value: T) -> tuple[T, ...]:
        self._threads.said[self._rank] = value
        self._threads.barrier.wait()
        seen = tuple(self._threads.said)
        self._threads.barrier.wait()
        return seen


def together(count: int, act: Callable[[int, ThreadPeers], T]) -> list[T]:
    """Return what *act* returns on each of *count* ranks."""
    threads = Threads(count)
    with ThreadPoolExecutor(count) as pool:
        ranks = [pool.submit(act, r, ThreadPeers(threads, r)) for r in range(count)]
        return [rank.result() for rank in ranks]
