"""Memory of sorting on CUDA: CUB's algorithms, rows that are sorted, their largest elements.

CUB's own memory follows from its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from .memory import SIMULATED_MEMORY
from .operation import NO_TEMPORARIES, OpCall, Rule, Temporaries, copies_of, nbytes_of
from .specification import PROPERTIES


# CUB's own memory, in pieces that start at multiples of 256 bytes.

ALIGNMENT: Final = 256
RADIX_BITS: Final = 8
DIGITS: Final = 256
WARP: Final = 32


@dataclass(frozen=True, slots=True)
class Tiles:
    """How many elements a block of each algorithm takes on an H100, by their dtype.

    Read from the sizes that torch 2.13 asks for with CUDA 12.6 (``tests/stub_cuda``).
    """

    sort_alone: int
    sort: int
    unique: int
    by_key: int
    scan: int
    scan_state: int


TILES: Final = {
    torch.int64: Tiles(2304, 4608, 2464, 2464, 896, 16),
    torch.int32: Tiles(4864, 6528, 3584, 4032, 1920, 8),
}


def _pieces(*sizes: int) -> int:
    """Bytes of pieces next to each other, the first of which need not be aligned."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes) + ALIGNMENT - 1


def sort_bytes(count: int, dtype: torch.dtype, largest: int) -> int:
    """Of ``DeviceRadixSort::SortPairs`` for numbers of as many bits as *largest*.

    One block needs none and each pass over a digit reads what the last one wrote,
    which the first one has from the caller and the last one writes to it.
    """
    tiles = TILES[dtype]
    if count <= tiles.sort_alone:
        return 1
    one = dtype.itemsize
    return _radix_bytes(count, largest.bit_length(), tiles.sort, one, one)


def _radix_bytes(count: int, bits: int, per_block: int, *between: int) -> int:
    """Of a radix sort of *count* numbers, with what is *between* passes of each."""
    passes = -(-max(bits, 1) // RADIX_BITS)
    seen = -(-count // per_block) * DIGITS * 4
    kept = [count * one if passes > 1 else 0 for one in between]
    return _pieces(passes * DIGITS * 8, seen, *kept, passes * 4)


def unique_bytes(count: int, dtype: torch.dtype) -> int:
    """Of ``DeviceSelect::UniqueByKey``."""
    blocks = -(-count // TILES[dtype].unique)
    return _pieces((blocks + WARP) * 8, 1, 1)


def by_key_bytes(count: int, dtype: torch.dtype) -> int:
    """Of ``DeviceScan::InclusiveSumByKey``."""
    blocks = -(-count // TILES[dtype].by_key)
    return _pieces((blocks + WARP) * 16, (blocks + 1) * dtype.itemsize)


def scan_bytes(count: int, dtype: torch.dtype) -> int:
    """Of ``DeviceScan::ExclusiveSum``."""
    tiles = TILES[dtype]
    blocks = -(-count // tiles.scan)
    return _pieces((blocks + WARP) * tiles.scan_state, 1)


# Sorted rows (Sort.cu, SortStable.cu) and the largest of each (TensorTopK.cu).

SORTED_IN_PLACE: Final = 4096
"""Rows of so many elements are sorted in place, by one block each."""

FEW_ROWS: Final = 128
LONG_ROW: Final = 1_000_000
"""Rows are sorted all at once where they are fewer and shorter, else one by one."""

SORTED_PER_BLOCK: Final = {1: 3456, 2: 5632, 4: 5376, 8: 4608}
NUMBERED_PER_BLOCK: Final = 5760
"""Elements that a block sorts with their places, by bytes; rows' numbers with places."""

POSITION: Final = 8


def _pair_bytes(count: int, one: int, bits: int) -> int:
    """Of ``DeviceRadixSort::SortPairs`` for *count* elements of *one* byte and positions."""
    if count <= TILES[torch.int64].sort_alone:
        return 1
    return _radix_bytes(count, bits, SORTED_PER_BLOCK[one], one, POSITION)


def permutation_bytes(count: int) -> Sequence[int]:
    """Of ``randperm``: keys of so many bits that few are equal, sorted (Randperm.cu)."""
    rarely_equal = count + (6 * count**2 + 1) / (-math.log(0.9) * 12)
    bits = min(max(math.ceil(math.log2(rarely_equal)), 1), 64)
    one = 4 if bits <= 32 else POSITION  # noqa: PLR2004, of an int
    return one * count, one * count, POSITION * count, _pair_bytes(count, one, bits)


def _sorted(tensor: Any, dim: int) -> list[int | Sequence[int]]:
    """What sorting long rows takes."""
    length, one = tensor.size(dim), tensor.element_size()
    rows, bits = tensor.numel() // length, min(8 * one, 64)
    each = POSITION * length
    if rows == 1 or length >= LONG_ROW:
        return [
            each,
            *[(_pair_bytes(length, one, bits),)] * rows,
        ]
    size, places = nbytes_of(tensor), POSITION * tensor.numel()
    if rows >= FEW_ROWS:
        return [places, (size + places + ALIGNMENT - 1,)]
    count = tensor.numel()
    values, bits = _pair_bytes(count, one, bits), (rows - 1).bit_length()
    numbers = _radix_bytes(count, bits, NUMBERED_PER_BLOCK, 4, POSITION)
    return [places, places, (size, values), (numbers,)]


def _sort(call: OpCall) -> Temporaries:
    tensor, dim = call["self"], call["dim"]
    length = tensor.size(dim) if tensor.dim() else 1
    if length <= SORTED_IN_PLACE:
        return Temporaries(phases=[[POSITION * length]] if length > 1 else ())
    size, places = nbytes_of(tensor), POSITION * tensor.numel()
    copied = [] if tensor.stride(dim) == 1 else [size, size, places]
    return Temporaries(phases=[[*copied, *_sorted(tensor, dim)]])


SHARED_ROWS: Final = {
    20: 20000,
    40: 10000,
    80: 8000,
    199: 5000,
    799: 3000,
    4000: 800,
    math.inf: 400,
}
"""Up to so many rows are each searched by several blocks if they are so long."""

SEARCHED_PER_THREAD: Final = (4, 64)
SEARCHING_BLOCKS: Final = 6
SEARCHING_THREADS: Final = 256
"""Elements of a thread, at least and at most, and blocks of a multiprocessor."""


def _topk(call: OpCall) -> Temporaries:
    tensor, k, dim = call["self"], call["k"], call["dim"]
    if not tensor.dim() or not k:
        return NO_TEMPORARIES
    found = Temporaries(phases=[[*copies_of(tensor), *_searched(tensor, dim)]])
    if k <= SORTED_IN_PLACE or not call["sorted"]:
        return found
    largest = tensor.narrow(dim, 0, k)
    size, places = largest.numel() * tensor.element_size(), POSITION * largest.numel()
    phase = [places, size, *_grouped(_sorted(largest, dim)), (places,)]
    return Temporaries(phases=[*found.phases, phase])


def _grouped(sizes: Sequence[int | Sequence[int]]) -> list[Sequence[int]]:
    """Sizes of each part, which is given back before the next one begins."""
    kept = [size for size in sizes if isinstance(size, int)]
    parts = [size for size in sizes if not isinstance(size, int)]
    return [(*kept, *part) for part in parts]


def _searched(tensor: Any, dim: int) -> Sequence[int]:
    """Counts of digits, if several blocks look for the k-th element of a row."""
    length = tensor.size(dim)
    rows, one = tensor.numel() // length, tensor.element_size()
    least = next(least for most, least in SHARED_ROWS.items() if rows <= most)
    if length < least:
        return ()
    threads = PROPERTIES.multi_processor_count * SEARCHING_BLOCKS * SEARCHING_THREADS
    low, high = SEARCHED_PER_THREAD
    each = max(low, min(-(-length * rows // threads), high))
    blocks = rows * -(-length // (each * SEARCHING_THREADS))
    digits = rows * DIGITS * 4
    scan = (by_key_bytes(blocks, torch.int32),)
    wide = rows * 2 * max(4, one)
    counted = blocks * DIGITS * 2
    return [rows * one, rows * 8, wide, counted, digits, blocks * 4, blocks * 4, scan]


# Values that differ (Unique.cu, TensorCompare.cu).

KEYS_PER_BLOCK: Final = {1: 9600, 2: 9600, 4: 6912, 8: 5760}
SELECTED_PER_BLOCK: Final = {1: 5120, 2: 7168, 4: 7168, 8: 3584}
COUNTED_PER_BLOCK: Final = {1: 768, 2: 800, 4: 800, 8: 768}
"""Elements of so many bytes that a block sorts without their places, selects or counts."""

SMALL_SET: Final = 10
SMALL_EXPONENT: Final = 0.145
"""A test set is compared as a whole up to ``SMALL_SET * elements ** SMALL_EXPONENT`` elements."""


def _unique(call: OpCall) -> Temporaries:
    """Sorted elements, and with the inverse their places as well."""
    tensor = call["self"]
    count, one = tensor.numel(), tensor.element_size()
    if tensor.dtype is torch.bool:
        return NO_TEMPORARIES
    size, places, bits = count * one, count * POSITION, 8 * one
    found = _consecutive(call)
    if call["return_inverse"]:
        pairs = _pair_bytes(count, one, bits)
        return replace(found, before=[size, places, (places, pairs)])
    is_alone = count <= TILES[torch.int64].sort_alone
    keys = 1 if is_alone else _radix_bytes(count, bits, KEYS_PER_BLOCK[one], one)
    return replace(found, before=[size, (keys,)])


def _consecutive(call: OpCall) -> Temporaries:
    """Where a value differs from the one before, and how many differ."""
    if call["dim"] is not None:
        return NO_TEMPORARIES
    count, one = call["self"].numel(), call["self"].element_size()
    if call["return_counts"]:
        own = _pieces((-(-count // COUNTED_PER_BLOCK[one]) + WARP) * 16)
    else:
        own = _pieces((-(-count // SELECTED_PER_BLOCK[one]) + WARP) * 8, 1)
    return Temporaries(phases=[[POSITION, own]])


def _is_in(call: OpCall) -> Temporaries:
    """Which elements equal which of a small test set; a large one is sorted with them."""
    elements, tested = call["elements"], call["test_elements"]
    sizes = [
        t.numel() if isinstance(t, torch.Tensor) else 1 for t in (elements, tested)
    ]
    if sizes[1] < SMALL_SET * sizes[0] ** SMALL_EXPONENT:
        return Temporaries(phases=[[sizes[0] * sizes[1], sizes[0]]])
    SIMULATED_MEMORY.leave_unchecked("aten::isin", UNKNOWN_VALUES)
    return NO_TEMPORARIES


UNKNOWN_VALUES: Final = "what it sorts depends on how many values differ"

SORT_MEMORY: Final[Mapping[str, Rule]] = {
    "_unique2": _unique,
    "unique_consecutive": _consecutive,
    "isin": _is_in,
    "sort": _sort,
    "topk": _topk,
}
"""Which operation takes what."""


def _cut(kernel: Any) -> Callable[..., Any]:
    """Wrap *kernel*: results have room for all elements, however few values differ."""

    def made(tensor: Any, *rest: Any, **named: Any) -> Any:
        found = kernel(tensor, *rest, **named)
        # Along a dimension, and of booleans, they are as large as needed.
        others = (each for each in (*rest, named.get("dim")) if each is not None)
        is_flat = all(isinstance(each, bool) for each in others)
        count = tensor.numel() * is_flat * (tensor.dtype is not torch.bool)
        return tuple(_with_room(part, count) for part in found)

    return made


def _with_room(part: Any, count: int) -> Any:
    if not 0 < part.numel() < count:
        return part
    room = part.new_empty(count)
    room[: part.numel()] = part
    return room.resize_(part.shape)


UNIQUE_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    name: _cut(getattr(torch.ops.aten, name).default)
    for name in ("_unique2", "unique_consecutive")
}
"""What to run on the host so that the results keep what those of CUDA keep."""
