"""Memory that CUDA kernels of sparse tensors take for themselves and give back.

The sizes are those of torch's sources under ``native/sparse``, from the number of elements that
are stored. What nobody can compute from it leaves the memory unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from .memory import SIMULATED_MEMORY
from .operation import NO_TEMPORARIES, OpCall, Rule, Temporaries, copies_of, nbytes_of


INDEX_BYTES: Final = 8
MERGE_TILE: Final = 2048
CUB_ALIGNMENT: Final = 256


def _places(sparse: Any) -> int:
    """Bytes of one index of each stored element."""
    return int(sparse._nnz()) * INDEX_BYTES  # noqa: SLF001, its only name


def _merge_sort(nbytes: int) -> int:
    """What cub sorts numbers and their order with, in one allocation (dispatch_merge_sort.cuh)."""
    tiles = -(-nbytes // INDEX_BYTES // MERGE_TILE)
    parts = nbytes, nbytes, (tiles + 1) * INDEX_BYTES
    aligned = sum(-(-part // CUB_ALIGNMENT) * CUB_ALIGNMENT for part in parts)
    return aligned + CUB_ALIGNMENT - 1


def _sorting(sparse: Any) -> Sequence[int]:
    """Places as one number each, their order, where they begin, and what sorts them."""
    places = _places(sparse)
    return places, places, places, _merge_sort(places)


def _coalescing(call: OpCall) -> Temporaries:
    return Temporaries(before=[_sorting(call["self"])])


def _product(call: OpCall) -> Temporaries:
    """Indices in 32 bits, and the result by columns (SparseCUDATensorMath.cu)."""
    is_added = call["mat1"] is not None
    first = call["mat1" if is_added else "self"]
    second = call["vec"] if call["mat2"] is None else call["mat2"]
    is_left = first.layout is torch.sparse_coo
    sparse, dense = (first, second) if is_left else (second, first)
    if sparse.layout is not torch.sparse_coo:
        return NO_TEMPORARIES
    size = first.size(0) * second.shape[1:].numel() * first.element_size()
    copied = [] if dense.t().is_contiguous() else copies_of(dense)
    merged: list[int | Sequence[int]] = []
    if not (is_left and sparse.is_coalesced()):
        kept = (sparse._indices(), sparse._values())  # noqa: SLF001, the public ones demand a coalesced one
        merged = [_sorting(sparse), *map(nbytes_of, kept)]
    places = _places(sparse) // 2
    indices = [4 * (sparse.size(int(not is_left)) + 1), (places,), places]
    # It is added to a matrix of zeros, or to a single zero.
    added = size if call["out"] is None else sparse.element_size()
    before = [] if is_added else [added]
    return Temporaries(before, [[*merged, *indices, size, *copied]])


def _sum(call: OpCall) -> Temporaries:
    """Numbers to add are multiplied first (SparseCUDATensorMath.cu)."""
    return _added(call["self"], call["other"], is_plain=call["alpha"] == 1)


def _difference(call: OpCall) -> Temporaries:
    """A sum with the other one multiplied by -1."""
    return _added(call["self"], call["other"], is_plain=call["alpha"] == -1)


def _added(tensor: Any, other: Any, *, is_plain: bool) -> Temporaries:
    if tensor.layout is not torch.strided:
        return Temporaries([] if is_plain else [_elements(other)])
    # Places of one dimension are numbers already.
    has_numbers = other.is_coalesced() or other.sparse_dim() == 1
    return Temporaries(phases=[[] if has_numbers else [_places(other)]])


def _multiplied(call: OpCall) -> Temporaries:
    """Elements at the places of a dense one, or places that both store."""
    sparse = [t for t in call.tensors() if t.layout is torch.sparse_coo]
    if len(sparse) > 1:
        return Temporaries(_intersection(*sparse[:2]))
    is_number = not any(t.dim() for t in call.tensors() if t is not sparse[0])
    return NO_TEMPORARIES if is_number else Temporaries([_elements(sparse[0])])


def _elements(sparse: Any) -> int:
    """Bytes of the stored elements."""
    return nbytes_of(sparse._values())  # noqa: SLF001


def _masked(call: OpCall) -> Temporaries:
    """Elements at the places of the mask, multiplied by one 1."""
    tensor, mask = call["self"], call["mask"]
    if tensor.layout is not torch.strided:
        return _unknown("sparse_mask")(call)
    return Temporaries([tensor.element_size(), _elements(mask)])


def _intersection(first: Any, second: Any) -> Sequence[int]:
    """Places of one are looked up in those of the other (SparseBinaryOpIntersectionCommon.h)."""
    is_larger = first._nnz() >= second._nnz()  # noqa: SLF001
    alike = first.is_coalesced() == second.is_coalesced()
    is_table = is_larger if alike else first.is_coalesced()
    table, source = (first, second) if is_table else (second, first)
    places = _places(table)
    ordered = [] if table.is_coalesced() else [places, places]
    numbers = max(places, _places(source))
    return [numbers, places, *ordered, 2 * _places(source)]


def _in_place(rule: Rule) -> Rule:
    """*rule* of an operation that replaces the elements of its first argument.

    The old ones are alive until the new ones are there.
    """

    def kept(call: OpCall) -> Temporaries:
        found, tensor = rule(call), call["self"]
        if tensor.layout is not torch.sparse_coo:
            return found
        old = nbytes_of(tensor._indices()), _elements(tensor)  # noqa: SLF001
        return Temporaries([*found.before, *old], found.phases)

    return kept


def _unknown(name: str) -> Rule:
    def rule(_: OpCall) -> Temporaries:
        SIMULATED_MEMORY.leave_unchecked(f"aten::{name}", UNKNOWN_TEMPORARIES)
        return NO_TEMPORARIES

    return rule


UNKNOWN_TEMPORARIES: Final = (
    "what its kernels for sparse tensors take for themselves is not known"
)

SPARSE_MEMORY: Final[Mapping[str, Rule]] = {
    "_coalesce": _coalescing,
    **dict.fromkeys(("_sparse_addmm", "addmm", "addmm_", "mm", "mv"), _product),
    "add": _sum,
    "add_": _in_place(_sum),
    "mul": _multiplied,
    "mul_": _in_place(_multiplied),
    "sub": _difference,
    "sub_": _in_place(_difference),
    "sparse_mask": _masked,
    **{
        name: _unknown(name)
        for name in (
            "_foreach_add _foreach_add_ _sparse_log_softmax _sparse_log_softmax_backward_data _sparse_softmax "
            "_sparse_softmax_backward_data _sparse_sparse_matmul _sparse_sum "
            "_sparse_sum_backward bmm hspmm sspaddmm"
        ).split()
    },
}
"""Which operation takes what of tensors that are not strided."""
