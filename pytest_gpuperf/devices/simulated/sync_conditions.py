"""A sync rule, and the conditions: each returns how often its rule applies to a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...model.finding import FindingKind
from .operation import OpCall


Condition = Callable[[OpCall], int]

MOST_IN_A_SLICE: Final = 2048
"""Elements along the dimension of ``mode`` for which it has a kernel (TensorModeKernel.cu)."""


def on_device(call: OpCall) -> int:
    """Any tensor is on the device."""
    return int(call.is_any_on_device())


def not_empty(call: OpCall) -> int:
    """The tensor has elements; torch answers for an empty one without a kernel."""
    return int(call.is_any_on_device() and next(call.tensors()).numel() > 0)


def errors_checked(call: OpCall) -> int:
    """It reads error codes, unless its argument says that it does not."""
    return on_device(call) if call["check_errors"] is not False else 0


def filled(name: str) -> Condition:
    """The argument *name* is a tensor on the device that has elements."""
    return lambda call: int(call.on_device(name) and call[name].numel() > 0)


def deviations_checked(call: OpCall) -> int:
    """``normal`` of tensors: the check comes again where the result is made for it."""
    if not call.on_device("std") or not call["std"].numel():
        return 0
    return 1 if call["out"] is not None else 2


def of_elements(call: OpCall) -> int:
    """``unique`` of all elements, not along a dimension."""
    return not_empty(call) if call["dim"] is None else 0


def of_slices(call: OpCall) -> int:
    """``unique`` along a dimension: twice, and more for each result that is asked for."""
    if call["dim"] is None or not not_empty(call):
        return 0
    sorts = call["sorted"] is not None
    inverse, counts = bool(call["return_inverse"]), bool(call["return_counts"])
    return 2 + sorts + 3 * inverse + counts


def signed(call: OpCall) -> int:
    """The elements may be negative."""
    return int(not_empty(call) and next(call.tensors()).dtype is not torch.uint8)


def element_bytes(call: OpCall) -> int:
    """Bytes of one element, or of its absolute value."""
    tensor = next(call.tensors())
    return int(tensor.element_size()) // (2 if tensor.is_complex() else 1)


def long_slices(call: OpCall) -> int:
    """Slices that torch's own kernel for ``mode`` does not take."""
    tensor = call["self"]
    length = tensor.shape[call["dim"]] if tensor.dim() else 1
    return int(call.on_device("self") and length > MOST_IN_A_SLICE)


def judges_convergence(call: OpCall) -> int:
    """A decomposition by cuSOLVER's ``gesvdj`` and its kin, not by ``gesvd``."""
    is_other = call["driver"] == "gesvd" or call["hermitian"]
    return 0 if is_other else not_empty(call)


def code_bytes(call: OpCall) -> int:
    """Bytes of an error code for each matrix."""
    return 4 * _batch(next(call.tensors()))


def factored_by_magma(call: OpCall) -> int:
    """The heuristic of ``lu_factor`` in torch's BatchLinearAlgebra.cpp, and its syncs."""
    if not not_empty(call):
        return 0
    matrices = next(call.tensors())
    (rows, columns), batch = matrices.shape[-2:], _batch(matrices)
    if rows != columns:
        return 3
    is_small = rows <= 16 or (rows <= 128 and batch <= 16)  # noqa: PLR2004, torch's own
    if batch == 1 or is_small:
        return 0
    return 2 if rows <= 32 else 3  # noqa: PLR2004, MAGMA's own


def one_matrix(call: OpCall) -> int:
    """A single matrix of several elements."""
    matrices = next(call.tensors())
    return int(_batch(matrices) == 1 and matrices.numel() > 1 and not_empty(call))


def several_matrices(call: OpCall) -> int:
    """More than one matrix, of several elements each."""
    matrices = next(call.tensors())
    return int(_batch(matrices) > 1 and matrices.shape[-1] > 1 and not_empty(call))


def place_bytes(_: OpCall) -> int:
    """Bytes of one index."""
    return int(torch.int64.itemsize)


def _batch(matrices: Any) -> int:
    return math.prod(matrices.shape[:-2])


def listed_lengths(call: OpCall) -> int:
    """The lengths are numbers on the host, as torch's own wrapper hands them on."""
    return int(call.is_any_on_device() and isinstance(call["input_lengths"], list))


def host_numbers(call: OpCall) -> int:
    """Once for each tensor on the host, next to one on the device."""
    if not call.is_any_on_device():
        return 0
    return sum(map(call.is_host_tensor, call.tensors()))


def number_bytes(call: OpCall) -> int:
    """Bytes of the largest number on the host."""
    return max(int(t.element_size()) for t in call.tensors() if call.is_host_tensor(t))


def length_bytes(call: OpCall) -> int:
    """Bytes of a list of lengths, which torch makes a tensor of int64."""
    return len(call["input_lengths"]) * int(torch.int64.itemsize)


def compares_elements(call: OpCall) -> int:
    """``equal`` of tensors that their sizes and their memory do not tell apart."""
    ours, others = call["self"], call["other"]
    if not call.is_any_on_device() or ours.shape != others.shape or not ours.numel():
        return 0
    return int(
        ours.data_ptr() != others.data_ptr()
        or ours.dtype != others.dtype
        or ours.stride() != others.stride()
    )


def named(*names: str) -> Condition:
    """Once for each of the arguments *names* that is a tensor on the device."""

    def condition(call: OpCall) -> int:
        return sum(call.on_device(name) for name in names)

    return condition


def whole_numbers(name: str) -> Condition:
    """The argument *name* is a tensor of integers on the device."""
    return lambda call: int(call.on_device(name) and not call[name].is_floating_point())


def without(name: str) -> Condition:
    """On the device, and the argument *name* was not given."""
    return lambda call: int(call.is_any_on_device() and call[name] is None)


def size_unknown(call: OpCall) -> int:
    """``repeat_interleave`` of device repeats without ``output_size``."""
    return int(call.on_device("repeats") and call["output_size"] is None)


def range_unknown(call: OpCall) -> int:
    """``histc`` with equal ends, as by default: then it reads the data's own range."""
    return int(call.is_any_on_device() and call["min"] == call["max"])


def lengths_checked(call: OpCall) -> int:
    """``segment_reduce`` of lengths that were not declared safe."""
    return int(call.on_device("lengths") and not call["unsafe"])


def sorts_the_test_set(call: OpCall) -> int:
    """``isin`` above torch's own threshold, where it sorts both sets."""
    elements, tests = call["elements"], call["test_elements"]
    if not isinstance(elements, torch.Tensor) or not isinstance(tests, torch.Tensor):
        return 0
    # The threshold of ``isin`` in torch's TensorCompare.cpp.
    is_large = tests.numel() >= 10.0 * float(elements.numel()) ** 0.145
    return int(is_large and call.on_device("elements"))


def test_set_is_large(call: OpCall) -> int:
    """The same, if the caller does not know that nothing is in them twice."""
    return sorts_the_test_set(call) and int(not call["assume_unique"])


def one_byte(_: OpCall) -> int:
    """A boolean."""
    return 1


def device_masks(call: OpCall) -> int:
    """Once for each mask on the device, unless the call becomes a fill."""
    return 0 if _is_fill(call) else _masks(call)


def host_masks(call: OpCall) -> int:
    """Once for each dimension of a mask on the host."""
    return call.dimensions_of_host_masks() if call.on_device("self") else 0


def host_positions(call: OpCall) -> int:
    """Once for each index tensor on the host that is no mask."""
    if not call.on_device("self") or _masks(call):
        return 0
    return call.host_indices()


def host_number(call: OpCall) -> int:
    """A number from the host put at positions, where no fill will do."""
    return int(_has_host_number(call) and not _is_fill(call))


def put_bytes(call: OpCall) -> int:
    """Bytes of the number that is put."""
    return int(call["values"].element_size())


def _masks(call: OpCall) -> int:
    return call.device_indices(masks=True) if call.on_device("self") else 0


def _has_host_number(call: OpCall) -> bool:
    values = call["values"]
    return (
        call.on_device("self") and call.is_host_tensor(values) and values.numel() == 1
    )


def _is_fill(call: OpCall) -> bool:
    """One mask, a number from the host, nothing to add up: ``masked_fill``."""
    return (
        _has_host_number(call)
        and call.device_indices(masks=True) == 1
        and sum(i is not None for i in call["indices"]) == 1
        and not call["accumulate"]
    )


# Conditions of the rules about sparse tensors.

FEWEST_TO_COALESCE = 2
"""Elements from which on coalescing takes kernels; torch has fewer for coalesced."""


def has_several(call: OpCall) -> int:
    """The sparse tensor has elements that could be the same one."""
    return int(call.on_device("self") and _elements(call["self"]))


def uncoalesced(call: OpCall) -> int:
    """Once for each sparse tensor that may contain an element twice."""
    return sum(map(_is_uncoalesced, _on_device(call)))


def grows_beyond_itself(call: OpCall) -> int:
    """Both are sparse, and have together more elements than there are places."""
    pair = [call["self"], call["other"]]
    if not all(hasattr(t, "inside") and t.layout is torch.sparse_coo for t in pair):
        return 0
    insides = [tensor.inside for tensor in pair]
    count = sum(inside._nnz() for inside in insides)  # noqa: SLF001, its only name
    return int(count > insides[0].numel())


def is_sparse(name: str) -> Condition:
    """The argument *name* is a sparse tensor on the device."""
    return lambda call: int(call.on_device(name) and call[name].is_sparse)


def is_nested(call: OpCall) -> int:
    """The first tensor is nested."""
    return int(next(call.tensors()).is_nested)


def along_sparse(name: str) -> Condition:
    """``self`` is sparse, and *name* is one of its sparse dimensions."""

    def condition(call: OpCall) -> int:
        tensor = call["self"]
        if not call.on_device("self") or not tensor.is_sparse:
            return 0
        return int(call[name] % tensor.dim() < tensor.inside.sparse_dim())

    return condition


def keeps_sparse(call: OpCall) -> int:
    """A sum over some but not all sparse dimensions has a sparse gradient."""
    if not call.on_device("grad") or not call["grad"].is_sparse:
        return 0
    tensor = call["self"]
    sparse = tensor.inside.sparse_dim()
    return int(any(dim % tensor.dim() < sparse for dim in call["dim"]))


def coalesces_for_sums(call: OpCall) -> int:
    """A tensor with elements twice; sums over some sparse dimensions, which may meet them."""
    tensor = call["self"]
    if not call.on_device("self") or not tensor.is_sparse or not call["dim"]:
        return uncoalesced(call) if call["dim"] else 0
    sparse = tensor.inside.sparse_dim()
    over = sum(dim < sparse for dim in {dim % tensor.dim() for dim in call["dim"]})
    return uncoalesced(call) + int(0 < over < sparse and _elements(tensor))


def number_of(name: str) -> Condition:
    """The argument *name* is one number on the device."""
    return lambda call: int(call.on_device(name) and call[name].numel() == 1)


def _on_device(call: OpCall) -> list[Any]:
    return [tensor for tensor in call.tensors() if hasattr(tensor, "inside")]


def _is_uncoalesced(tensor: Any) -> bool:
    if tensor.layout is not torch.sparse_coo:
        return False
    return not tensor.inside.is_coalesced() and _elements(tensor)


def _elements(tensor: Any) -> bool:
    return bool(tensor.inside._nnz() >= FEWEST_TO_COALESCE)  # noqa: SLF001, its only name


# The polynomials by which torch computes ``matrix_exp``: their degree follows the norm.
#
# The bounds of the norms and the coefficients are those of ``mexp`` in torch's
# LinearAlgebra.cpp, after P. Bader, S. Blanes and F. Casas, "Computing the Matrix
# Exponential with an Optimized Taylor Polynomial Approximation", Mathematics 7 (2019)
# 1174.

HIGHEST_DEGREE: Final = 18
"""Beyond the last bound the matrix is scaled, and the result squared; also that of a batch."""

DEGREES: Final = (1, 2, 4, 8, 12)
SINGLE_BOUNDS: Final = (1.1921e-07, 5.9789e-04, 5.1166e-02, 5.8005e-01, 1.4617)
DOUBLE_BOUNDS: Final = (2.2204e-16, 2.5810e-08, 3.3972e-04, 4.9912e-02, 2.9962e-01)

COEFFICIENTS: Final[Mapping[int, tuple[int, ...]]] = {
    4: (3, 4),
    8: (2, 4, 2, 5),
    12: (16,),
    18: (25,),
}
"""Numbers that are copied to the GPU, one copy each, by degree."""


def of_degree(degree: int) -> Condition:
    """The polynomial has this degree."""
    return lambda call: int(_degree(call) == degree)


def one_of_highest_degree(call: OpCall) -> int:
    """A single matrix of a large norm."""
    return one_matrix(call) and int(_degree(call) == HIGHEST_DEGREE)


def numbers(count: int) -> Condition:
    """Bytes of so many elements, or of their absolute values."""
    return lambda call: count * int(next(call.tensors()).element_size())


def two_places(_: OpCall) -> int:
    """Bytes of two indices."""
    return 2 * int(torch.int64.itemsize)


def _degree(call: OpCall) -> int:
    """The degree, or 0 if nothing is computed or the values are not known."""
    if several_matrices(call):
        return HIGHEST_DEGREE
    matrix = next(call.tensors())
    if not one_matrix(call) or matrix.inside.is_meta:
        return 0
    norm = _norm(matrix.inside)
    is_double = matrix.dtype in {torch.float64, torch.complex128}
    bounds = DOUBLE_BOUNDS if is_double else SINGLE_BOUNDS
    fitting = (d for d, most in zip(DEGREES, bounds, strict=True) if norm <= most)
    return next(fitting, HIGHEST_DEGREE)


def _norm(inside: Any) -> float:
    """The largest sum of absolute values of a column."""
    return float(inside.detach().abs().sum(-2).max())


# One claim: which operations wait, when, how often and by what evidence.


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRule:
    """Each of ``ops`` waits ``count`` times as often as ``when`` says.

    It is true from torch ``since`` on and below ``until``, if that is given. ``source``
    is where the claim comes from. ``copied`` says how many bytes each of them copies to
    the device from pageable memory, if any, and ``read_back`` how many to such memory.
    """

    ops: tuple[str, ...]
    when: Condition
    reason: str
    source: str
    count: int = 1
    kind: FindingKind = FindingKind.SYNC
    since: tuple[int, int] = (2, 6)
    until: tuple[int, int] | None = None
    copied: Condition | None = None
    read_back: Condition | None = None
