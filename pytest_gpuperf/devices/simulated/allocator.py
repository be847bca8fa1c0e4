"""The CUDA caching allocator with its default settings, as arithmetic.

Sizes and rules are those of c10/cuda/CUDACachingAllocator.cpp of torch 2.13. It takes memory from the device in segments, cuts blocks from them, best fit
first, and joins a freed block with its free neighbours. Each stream, and each pool of a
graph, has blocks of its own. If the rest of a block is not
worth a cut, all of the block counts as allocated.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple


# Settings of the allocator that the simulation does not cover.

ALLOCATOR_VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

DEFAULTS: Final = {"backend": "native", "expandable_segments": "false"}
"""Values that change nothing, of the settings that have one."""

CHANGES_RESERVED: Final = frozenset(
    "backend expandable_segments garbage_collection_threshold "
    "large_segment_size_mb max_split_size_mb roundup_power2_divisions".split()
)
CHANGES_ALLOCATED: Final = frozenset(
    {"backend", "max_split_size_mb", "roundup_power2_divisions"}
)


def settings_against_reserved(environment: Mapping[str, str]) -> str | None:
    """Say which setting makes a prediction of reserved memory wrong, if one does."""
    return _first(environment, CHANGES_RESERVED)


def settings_against_allocated(environment: Mapping[str, str]) -> str | None:
    """Say which setting makes a prediction of allocated memory wrong, if one does."""
    return _first(environment, CHANGES_ALLOCATED)


def read_settings(environment: Mapping[str, str]) -> None:
    """Read them where the GPU is first used, as torch does: later changes have no effect."""
    for name in ALLOCATOR_VARIABLES:
        settings_made.setdefault(name, environment.get(name, ""))


def are_segments_expandable() -> bool:
    """Whether the program has them grow, so that no rest of a block is too small to cut."""
    made = ",".join(settings_made.values()).lower().replace(" ", "")
    return "expandable_segments:true" in made


def change_settings(settings: str) -> None:
    """Set them from now on, as in the environment."""
    settings_made["torch.cuda.memory._set_allocator_settings"] = settings


settings_made: Final[dict[str, str]] = {}
"""What holds from the first use of the GPU on, by its variable or what the program called."""


def _first(environment: Mapping[str, str], names: frozenset[str]) -> str | None:
    given = {
        name: environment.get(name, "") for name in ALLOCATOR_VARIABLES
    } | settings_made
    for variable, settings in given.items():
        for setting in settings.split(","):
            name, _, value = (part.strip() for part in setting.partition(":"))
            if name in names and value.lower() != DEFAULTS.get(name):
                return (
                    f"{variable} sets {setting.strip()}, and the simulated allocator "
                    "has its defaults: unset it, or measure on a GPU"
                )
    return None


# One of the quantities that torch's allocator keeps count of.


@dataclass(slots=True)
class Gauge:
    """What it is now, the most it was, and all that ever came and went."""

    now: int = 0
    peak: int = 0
    come: int = 0
    gone: int = 0

    def rise(self, amount: int) -> None:
        """Count *amount* that came."""
        self.come += amount
        self.now += amount
        self.peak = max(self.peak, self.now)

    def fall(self, amount: int) -> None:
        """Count *amount* that went."""
        self.gone += amount
        self.now -= amount

    def reset_peak(self) -> None:
        """Let the peak start at what is now."""
        self.peak = self.now

    def reset_sums(self) -> None:
        """Forget what came and went."""
        self.come = self.gone = 0


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
"""Segments for requests between the two (kLargeBuffer)."""

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


class BlockOrigin(NamedTuple):
    """Where a block comes from: a pool, 0 if it is of no graph, and a stream."""

    pool: int = 0
    stream: int = 0


DEFAULT: Final = BlockOrigin()


@dataclass(slots=True, eq=False)
class SegmentBlock:
    """A piece of a segment; its neighbours are in the same segment."""

    nbytes: int
    address: int
    is_small: bool
    origin: BlockOrigin
    is_free: bool = False
    requested_bytes: int = 0
    previous: SegmentBlock | None = None
    following: SegmentBlock | None = None

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
        self._free: defaultdict[tuple[bool, BlockOrigin], list[SegmentBlock]] = (
            defaultdict(list)
        )
        self._pools: set[int] = set()
        self._used: dict[int, SegmentBlock] = {}
        self._next_address = 0

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        """Everything that is counted."""
        sums = (self.allocated, self.requested, self.reserved, self.split)
        return (*sums, self.blocks, self.segments, self.split_blocks)

    def allocate(self, number: int, nbytes: int, origin: BlockOrigin = DEFAULT) -> None:
        """Give *number*, which has no block, one of at least *nbytes*."""
        wanted = rounded(nbytes)
        if origin.pool:
            self._pools.add(origin.pool)
        block = self._best_fit(wanted, origin) or self._new_segment(wanted, origin)
        # Cut before it counts: only what remains of the block is allocated.
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
        # Neighbours are joined at once, so two free blocks are never side by side and
        # looking one block in each direction is enough.
        if block.previous is not None and block.previous.is_free:
            block = self._joined(block.previous, block)
        if block.following is not None and block.following.is_free:
            block = self._joined(block, block.following)
        self._add(block)

    def fits(
        self, nbytes: int, limit_bytes: int, origin: BlockOrigin = DEFAULT
    ) -> bool:
        """Whether a block of *nbytes* fits with at most *limit_bytes* reserved."""
        wanted = rounded(nbytes)
        # The cheap test first: as long as the device has room, the pools need no
        # search.
        if self.reserved.now + segment_bytes(wanted) <= limit_bytes:
            return True
        pool = self._free[wanted <= SMALL_BYTES, origin]
        return _place(pool, wanted) < len(pool)

    def drop_pool(self, pool: int) -> None:
        """Let ``empty_cache`` take *pool* as well: its graphs are gone."""
        self._pools.discard(pool)

    def empty_cache(self) -> bool:
        """Give back the segments of which nothing is in use; return if there were any.

        Pools of graphs keep their blocks as long as the graphs live.
        """
        before = self.segments.now
        for key, pool in self._free.items():
            if key[1].pool in self._pools:
                continue
            for block in pool:
                if block.is_whole:
                    self.reserved.fall(block.nbytes)
                    self.segments.fall(1)
            self._free[key] = [block for block in pool if not block.is_whole]
        return self.segments.now < before

    def reset_peaks(self) -> None:
        """Let all peaks start at what is now."""
        for gauge in self.gauges:
            gauge.reset_peak()

    def _best_fit(self, nbytes: int, origin: BlockOrigin) -> SegmentBlock | None:
        pool = self._free[nbytes <= SMALL_BYTES, origin]
        place = _place(pool, nbytes)
        return self._taken(pool, place) if place < len(pool) else None

    def _new_segment(self, nbytes: int, origin: BlockOrigin) -> SegmentBlock:
        size = segment_bytes(nbytes)
        is_small = nbytes <= SMALL_BYTES
        block = SegmentBlock(size, self._next_address, is_small, origin)
        self._next_address += size
        self.segments.rise(1)
        self.reserved.rise(size)
        return block

    def _split(self, block: SegmentBlock, nbytes: int) -> None:
        """Cut *block* down to *nbytes*, if what is left is worth a block."""
        left = block.nbytes - nbytes
        # ``should_split`` of torch's allocator: small blocks are cut for any rest,
        # large ones only for a rest of more than 1 MiB.
        is_little = not block.is_small and left <= SMALL_BYTES
        if left < ROUND_BYTES or (is_little and not are_segments_expandable()):
            return
        address = block.address + nbytes
        rest = SegmentBlock(left, address, block.is_small, block.origin)
        rest.previous, rest.following = block, block.following
        if block.following is not None:
            block.following.previous = rest
        block.nbytes, block.following = nbytes, rest
        self._add(rest)

    def _joined(self, first: SegmentBlock, second: SegmentBlock) -> SegmentBlock:
        for block in (first, second):
            # A block in a pool is found there by its size, so it is taken out before
            # the size changes.
            if block.is_free:
                self._remove(block)
        first.nbytes += second.nbytes
        first.following = second.following
        if second.following is not None:
            second.following.previous = first
        return first

    def _add(self, block: SegmentBlock) -> None:
        block.is_free = True
        # The pools stay sorted, so that best fit is a binary search: a step makes tens
        # of thousands of blocks.
        bisect.insort(self._free[block.is_small, block.origin], block, key=_order)
        if not block.is_whole:
            # torch's ``inactive_split_bytes``: a free piece keeps its segment reserved,
            # while a whole free segment could be given back.
            self.split.rise(block.nbytes)
            self.split_blocks.rise(1)

    def _remove(self, block: SegmentBlock) -> None:
        pool = self._free[block.is_small, block.origin]
        self._taken(pool, bisect.bisect_left(pool, _order(block), key=_order))

    def _taken(self, pool: list[SegmentBlock], place: int) -> SegmentBlock:
        block = pool.pop(place)
        block.is_free = False
        if not block.is_whole:
            self.split.fall(block.nbytes)
            self.split_blocks.fall(1)
        return block


def _place(pool: list[SegmentBlock], nbytes: int) -> int:
    """Return the position of the best fit for *nbytes* in *pool*, or its end."""
    # No address is negative, so -1 comes before every block of the same size.
    return bisect.bisect_left(pool, (nbytes, -1), key=_order)


def _order(block: SegmentBlock) -> tuple[int, int]:
    """Best fit: the smallest first, and of those the one at the lowest address."""
    return block.nbytes, block.address
