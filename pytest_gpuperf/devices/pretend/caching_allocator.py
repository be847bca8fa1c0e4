"""The CUDA caching allocator with its default settings, as arithmetic.

Sizes and rules are those of c10/cuda/CUDACachingAllocator.cpp of torch 2.13, for one
stream. It takes memory from the device in segments, cuts blocks from them, best fit
first, and joins a freed block with its free neighbours. What a block is larger than
was asked, as it is not worth a cut, counts as allocated.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

from .gauge import Gauge


KIB: Final = 2**10
MIB: Final = 2**20

ROUND_BYTES: Final = 512
"""Every request is rounded up to a multiple of this (kMinBlockSize)."""

SMALL_BYTES: Final = MIB
"""Requests up to this come from the pool of small blocks (kSmallSize)."""

SMALL_SEGMENT_BYTES: Final = 2 * MIB
"""Segments of that pool (kSmallBuffer)."""

LARGE_BYTES: Final = 10 * MIB
"""Requests from this on get a segment of their own size (kMinLargeAlloc)."""

LARGE_SEGMENT_BYTES: Final = 20 * MIB
"""Segments for what lies between (kLargeBuffer)."""

SEGMENT_ROUND_BYTES: Final = 2 * MIB
"""Segments of their own size are rounded up to a multiple of this (kRoundLarge)."""


def rounded(nbytes: int, to: int = ROUND_BYTES) -> int:
    """Round *nbytes*, one at least, up to a multiple of *to*."""
    return max(to, -(-nbytes // to) * to)


def segment_bytes(block_bytes: int) -> int:
    """Bytes to take from the device for a block of *block_bytes*, rounded before."""
    if block_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return rounded(block_bytes, SEGMENT_ROUND_BYTES)


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; its neighbours are in the same segment."""

    nbytes: int
    address: int
    is_small: bool
    is_free: bool = False
    requested_bytes: int = 0
    previous: Block | None = None
    following: Block | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.previous is None and self.following is None


class CachingAllocator:
    """Blocks by the caller's numbers, and what torch counts of them.

    ``allocated`` sums the blocks in use, ``requested`` what was asked for them,
    ``reserved`` the segments taken from the device, which only ``empty_cache`` gives
    back, and ``split`` the free blocks that keep a segment from being given back.
    """

    def __init__(self) -> None:
        self.allocated = Gauge()
        self.requested = Gauge()
        self.reserved = Gauge()
        self.split = Gauge()
        self.blocks = Gauge()
        self.segments = Gauge()
        self.split_blocks = Gauge()
        self._free: dict[bool, list[Block]] = {True: [], False: []}
        self._used: dict[int, Block] = {}
        self._next_address = 0

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        """Everything that is counted."""
        sums = (self.allocated, self.requested, self.reserved, self.split)
        return (*sums, self.blocks, self.segments, self.split_blocks)

    def allocate(self, number: int, nbytes: int) -> None:
        """Give *number*, which has no block, one of at least *nbytes*."""
        wanted = rounded(nbytes)
        block = self._best_fit(wanted) or self._new_segment(wanted)
        self._split(block, wanted)
        self._used[number] = block
        block.requested_bytes = nbytes
        self.allocated.rise(block.nbytes)
        self.requested.rise(nbytes)
        self.blocks.rise(1)

    def free(self, number: int) -> None:
        """Take back the block of *number*."""
        block = self._used.pop(number)
        self.allocated.fall(block.nbytes)
        self.requested.fall(block.requested_bytes)
        self.blocks.fall(1)
        if block.previous is not None and block.previous.is_free:
            block = self._joined(block.previous, block)
        if block.following is not None and block.following.is_free:
            block = self._joined(block, block.following)
        self._add(block)

    def fits(self, nbytes: int, limit_bytes: int) -> bool:
        """Whether a block of *nbytes* can be had with *limit_bytes* reserved at most."""
        wanted = rounded(nbytes)
        if self.reserved.now + segment_bytes(wanted) <= limit_bytes:
            return True
        pool = self._free[wanted <= SMALL_BYTES]
        return _place(pool, wanted) < len(pool)

    def empty_cache(self) -> None:
        """Give back the segments of which nothing is in use."""
        for is_small, pool in self._free.items():
            for block in pool:
                if block.is_whole:
                    self.reserved.fall(block.nbytes)
                    self.segments.fall(1)
            self._free[is_small] = [block for block in pool if not block.is_whole]

    def reset_peaks(self) -> None:
        """Let all peaks start at what is now."""
        for gauge in self.gauges:
            gauge.reset_peak()

    def _best_fit(self, nbytes: int) -> Block | None:
        pool = self._free[nbytes <= SMALL_BYTES]
        place = _place(pool, nbytes)
        return self._taken(pool, place) if place < len(pool) else None

    def _new_segment(self, nbytes: int) -> Block:
        size = segment_bytes(nbytes)
        block = Block(size, self._next_address, nbytes <= SMALL_BYTES)
        self._next_address += size
        self.segments.rise(1)
        self.reserved.rise(size)
        return block

    def _split(self, block: Block, nbytes: int) -> None:
        """Cut *block* down to *nbytes*, if what is left is worth a block."""
        left = block.nbytes - nbytes
        if left < ROUND_BYTES or (not block.is_small and left <= SMALL_BYTES):
            return
        rest = Block(left, block.address + nbytes, block.is_small)
        rest.previous, rest.following = block, block.following
        if block.following is not None:
            block.following.previous = rest
        block.nbytes, block.following = nbytes, rest
        self._add(rest)

    def _joined(self, first: Block, second: Block) -> Block:
        for block in (first, second):
            if block.is_free:
                self._remove(block)
        first.nbytes += second.nbytes
        first.following = second.following
        if second.following is not None:
            second.following.previous = first
        return first

    def _add(self, block: Block) -> None:
        block.is_free = True
        bisect.insort(self._free[block.is_small], block, key=_order)
        if not block.is_whole:
            self.split.rise(block.nbytes)
            self.split_blocks.rise(1)

    def _remove(self, block: Block) -> None:
        pool = self._free[block.is_small]
        self._taken(pool, bisect.bisect_left(pool, _order(block), key=_order))

    def _taken(self, pool: list[Block], place: int) -> Block:
        block = pool.pop(place)
        block.is_free = False
        if not block.is_whole:
            self.split.fall(block.nbytes)
            self.split_blocks.fall(1)
        return block


def _place(pool: list[Block], nbytes: int) -> int:
    """Where the best fit for *nbytes* stands in *pool*, or its end."""
    return bisect.bisect_left(pool, (nbytes, -1), key=_order)


def _order(block: Block) -> tuple[int, int]:
    """Best fit: the smallest first, and of those the one at the lowest address."""
    return block.nbytes, block.address
