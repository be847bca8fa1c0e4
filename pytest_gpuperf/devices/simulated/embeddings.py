"""Memory of embedding tables on CUDA: what their gradients take to sort the indices.

``Embedding.cu`` and ``EmbeddingBag.cu`` sort the indices and add up the rows of each one
(EmbeddingBackwardKernel.cu). Sorting, finding the segments and summing up their sizes
are algorithms of ``sorting``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from .operation import NO_TEMPORARIES, OpCall, Rule, Temporaries, copies_of, nbytes_of
from .sorting import by_key_bytes, scan_bytes, sort_bytes, unique_bytes
from .specification import PROPERTIES


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
    before.append((size, sort_bytes(count, dtype, rows)))
    if call["scale_grad_by_freq"]:
        scanned = (by_key_bytes(count, dtype),)
        before += [size, scanned, scanned]
    segments = min(count, rows)
    parts = count // ROWS_PER_THREAD + segments
    is_atomic = not in_bags and _is_atomic(segments, parts, grad.size(-1))
    phase: list[int | Sequence[int]] = [
        size,
        counter,
        (size, unique_bytes(count, dtype)),
        segments * one,
        segments * one,
        (scan_bytes(segments, dtype),),
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
