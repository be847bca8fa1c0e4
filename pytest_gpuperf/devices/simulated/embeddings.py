"""Memory of embedding tables on CUDA: what their gradients take to sort the indices.

``Embedding.cu`` and ``EmbeddingBag.cu`` sort the indices and add up the rows of each one
(EmbeddingBackwardKernel.cu). Sorting, finding the segments and summing up their sizes
are CUB's algorithms, whose own memory follows from their tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from .operation import NO_TEMPORARIES, OpCall, Rule, Temporaries, copies_of, nbytes_of
from .specification import PROPERTIES
from .temporaries import reduction_buffers


def _elementwise_loss(call: OpCall) -> Temporaries:
    """Of a loss that is computed in full before it is reduced."""
    tensor = call["self"]
    if call["reduction"] == 0:
        return NO_TEMPORARIES
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries(before=[nbytes_of(tensor)], phases=[buffers])


def _loss_of_logits(call: OpCall) -> Temporaries:
    """One less the target, in which the loss comes to be, and logarithms."""
    tensor, weight = call["self"], call["pos_weight"]
    size = nbytes_of(tensor)
    before: list[int | Sequence[int]] = []
    if weight is not None:
        before += [(nbytes_of(weight),), size]
    if call["reduction"] == 0:
        return Temporaries(before, [[size]])
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries([*before, size, (size,)], [buffers])


def _loss_in_its_output(call: OpCall) -> Temporaries:
    # The output is made for all elements, and another for what is to be reduced.
    tensor = call["self"]
    if call["reduction"] == 0:
        return NO_TEMPORARIES
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries(phases=[[nbytes_of(tensor), *buffers]])


LOSS_MEMORY: Final[Mapping[str, Rule]] = {
    "binary_cross_entropy": _elementwise_loss,
    "binary_cross_entropy_with_logits": _loss_of_logits,
    "huber_loss": _elementwise_loss,
    "mse_loss": _loss_in_its_output,
    "smooth_l1_loss": _loss_in_its_output,
}
"""Which operation takes what."""

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


def _sort_bytes(count: int, dtype: torch.dtype, largest: int) -> int:
    """Of ``DeviceRadixSort::SortPairs`` for numbers of as many bits as *largest*.

    One block needs none and each pass over a digit reads what the last one wrote,
    which the first one has from the caller and the last one writes to it.
    """
    tiles = TILES[dtype]
    if count <= tiles.sort_alone:
        return 1
    passes = -(-max(largest.bit_length(), 1) // RADIX_BITS)
    blocks = -(-count // tiles.sort)
    between = count * dtype.itemsize if passes > 1 else 0
    bins, seen = passes * DIGITS * 8, blocks * DIGITS * 4
    return _pieces(bins, seen, between, between, passes * 4)


def _unique_bytes(count: int, dtype: torch.dtype) -> int:
    """Of ``DeviceSelect::UniqueByKey``."""
    blocks = -(-count // TILES[dtype].unique)
    return _pieces((blocks + WARP) * 8, 1, 1)


def _by_key_bytes(count: int, dtype: torch.dtype) -> int:
    """Of ``DeviceScan::InclusiveSumByKey``."""
    blocks = -(-count // TILES[dtype].by_key)
    return _pieces((blocks + WARP) * 16, (blocks + 1) * dtype.itemsize)


def _scan_bytes(count: int, dtype: torch.dtype) -> int:
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


def _pair_bytes(count: int, one: int, bits: int, per_block: int) -> int:
    """Of ``DeviceRadixSort::SortPairs`` for *count* elements of *one* byte and positions."""
    passes = -(-max(bits, 1) // RADIX_BITS)
    between = (count * one, count * POSITION) if passes > 1 else (0, 0)
    seen = -(-count // per_block) * DIGITS * 4
    return _pieces(passes * DIGITS * 8, seen, *between, passes * 4)


def _sorted(tensor: Any, dim: int) -> list[int | Sequence[int]]:
    """What sorting long rows takes."""
    length, one = tensor.size(dim), tensor.element_size()
    rows, bits = tensor.numel() // length, min(8 * one, 64)
    each = POSITION * length
    if rows == 1 or length >= LONG_ROW:
        return [
            each,
            *[(_pair_bytes(length, one, bits, SORTED_PER_BLOCK[one]),)] * rows,
        ]
    size, places = nbytes_of(tensor), POSITION * tensor.numel()
    if rows >= FEW_ROWS:
        return [places, (size + places + ALIGNMENT - 1,)]
    count = tensor.numel()
    values = _pair_bytes(count, one, bits, SORTED_PER_BLOCK[one])
    numbers = _pair_bytes(count, 4, (rows - 1).bit_length(), NUMBERED_PER_BLOCK)
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
    """What is given back before the next part begins, at each of its heights."""
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
    scan = (_by_key_bytes(blocks, torch.int32),)
    wide = rows * 2 * max(4, one)
    counted = blocks * DIGITS * 2
    return [rows * one, rows * 8, wide, counted, digits, blocks * 4, blocks * 4, scan]


SORT_MEMORY: Final[Mapping[str, Rule]] = {"sort": _sort, "topk": _topk}
"""Which operation takes what."""


# Rows that are added up index by index.

ROWS_PER_THREAD: Final = 10
UNSORTED: Final = 3072
"""Up to so many indices one kernel adds up the rows without sorting them."""

MOST_THREADS_OF_BLOCK: Final = 1024
ATOMIC_BLOCKS: Final = 4
ATOMIC_PARTS: Final = 4
"""Up to so many blocks a multiprocessor, and from so many parts a block, adds are atomic."""

MAX: Final = 2
"""The mode of a bag that takes the largest of its rows, which needs no sorting."""


def _added_rows(
    call: OpCall, grad: Any, *, copied: Sequence[int] = (), in_bags: bool = False
) -> Temporaries:
    """What the gradient of a table takes, to which the rows of *grad* are added."""
    indices, rows = call["indices"], call["num_weights"]
    count, dtype, one = indices.numel(), indices.dtype, indices.element_size()
    size, counter = nbytes_of(indices), 8
    before: list[int | Sequence[int]] = [*copied, size, size]
    before.append((size, _sort_bytes(count, dtype, rows)))
    if call["scale_grad_by_freq"]:
        scanned = (_by_key_bytes(count, dtype),)
        before += [size, scanned, scanned]
    segments = min(count, rows)
    parts = count // ROWS_PER_THREAD + segments
    is_atomic = not in_bags and _is_atomic(segments, parts, grad.size(-1))
    phase: list[int | Sequence[int]] = [
        size,
        counter,
        (size, _unique_bytes(count, dtype)),
        segments * one,
        segments * one,
        (_scan_bytes(segments, dtype),),
        counter,
        parts * one,
        *_sums(grad, rows, parts, one, is_atomic=is_atomic),
    ]
    return Temporaries(before=before, phases=[phase])


def _is_atomic(segments: int, parts: int, width: int) -> bool:
    """Whether all threads add to the result itself: of few rows, each of many indices."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    warped = -(-width // PROPERTIES.warp_size) * PROPERTIES.warp_size
    blocks = -(-segments * warped // max(min(warped, MOST_THREADS_OF_BLOCK), 1))
    wanted = PROPERTIES.multi_processor_count * ATOMIC_BLOCKS
    return bool(blocks < wanted and parts > blocks * ATOMIC_PARTS)


def _sums(
    grad: Any, rows: int, parts: int, one: int, *, is_atomic: bool
) -> Sequence[int]:
    """What rows are added up in: those of a part, or the result as float32."""
    width, wide = grad.size(-1), max(4, grad.element_size())
    if not is_atomic:
        return (parts * width * wide,)
    is_half = grad.element_size() < wide
    return parts * one, rows * width * wide * is_half


def _embedding(call: OpCall) -> Temporaries:
    indices = call["indices"]
    return Temporaries(before=copies_of(indices) if indices.dim() > 1 else ())


def _embedding_backward(call: OpCall) -> Temporaries:
    indices, grad = call["indices"], call["grad_output"]
    copied = copies_of(indices, grad)
    if indices.numel() <= UNSORTED and not call["scale_grad_by_freq"]:
        return Temporaries(before=copied)
    return _added_rows(call, grad, copied=copied)


def _embedding_bag_backward(call: OpCall) -> Temporaries:
    if call["mode"] == MAX or call["sparse"] or not call["indices"].numel():
        return NO_TEMPORARIES
    return _added_rows(call, call["grad"], in_bags=True)


EMBEDDING_MEMORY: Final[Mapping[str, Rule]] = {
    "_embedding_bag_backward": _embedding_bag_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
}
"""Which operation takes what."""


# Bags: CUDA's kernel makes other tensors besides its result than the CPU's.


def _bags(kernel: Any) -> Callable[..., Any]:
    """Wrap *kernel*, which leaves out the bag of each index or makes one too many."""

    def made(weight: Any, indices: Any, offsets: Any, *rest: Any, **named: Any) -> Any:
        found, _, sizes, largest = kernel(weight, indices, offsets, *rest, **named)
        places = torch.arange(indices.numel(), device=indices.device)
        bags = torch.bucketize(places, offsets, right=True) - 1
        # A place for each number is made for the largest alone, which is found by row.
        places = largest if largest.dim() > 1 else indices.new_empty(0)
        return found, bags.to(indices.dtype), sizes, places

    return made


EMBEDDING_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    name: _bags(getattr(torch.ops.aten, name).default)
    for name in ("_embedding_bag", "_embedding_bag_forward_only")
}
"""What to run on the host so that the outputs are those of CUDA."""

BAG_ORDER: Final = (2, 1, 0, 3)
"""The outputs of a bag in the order in which CUDA makes them."""
