"""Operations that make the host wait on CUDA: one table, a row per claim.

Sources of the claims: "libtorch_cuda 2.13" is the disassembly of the 2.13.0+cu130
wheel, in which the named function calls a CUDA synchronisation; a header or file name
is torch's source; "test_sync_warning" is torch's own test of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from .audit_record import AuditKind
from .sync_conditions import Condition
from .sync_conditions import along_sparse
from .sync_conditions import code_bytes
from .sync_conditions import compares_elements
from .sync_conditions import deviations_checked
from .sync_conditions import device_masks
from .sync_conditions import element_bytes
from .sync_conditions import factored_by_magma
from .sync_conditions import filled
from .sync_conditions import grows_beyond_itself
from .sync_conditions import has_several
from .sync_conditions import host_masks
from .sync_conditions import host_number
from .sync_conditions import host_numbers
from .sync_conditions import host_positions
from .sync_conditions import is_sparse
from .sync_conditions import judges_convergence
from .sync_conditions import keeps_sparse
from .sync_conditions import length_bytes
from .sync_conditions import lengths_checked
from .sync_conditions import listed_lengths
from .sync_conditions import long_slices
from .sync_conditions import named
from .sync_conditions import not_empty
from .sync_conditions import number_bytes
from .sync_conditions import number_of
from .sync_conditions import of_elements
from .sync_conditions import of_slices
from .sync_conditions import on_device
from .sync_conditions import one_byte
from .sync_conditions import one_matrix
from .sync_conditions import place_bytes
from .sync_conditions import put_bytes
from .sync_conditions import range_unknown
from .sync_conditions import several_matrices
from .sync_conditions import signed
from .sync_conditions import size_unknown
from .sync_conditions import sorts_the_test_set
from .sync_conditions import sums_some
from .sync_conditions import sums_uncoalesced
from .sync_conditions import test_set_is_large
from .sync_conditions import uncoalesced
from .sync_conditions import whole_numbers
from .sync_conditions import without
from .sync_conditions import without_dim


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
    kind: AuditKind = AuditKind.SYNC
    since: tuple[int, int] = (2, 6)
    until: tuple[int, int] | None = None
    copied: Condition | None = None
    read_back: Condition | None = None


# Operations on sparse and nested tensors that make the host wait on CUDA.
#
# The sources are named as above. Compressed layouts (CSR and its kin) are not judged.

LAYOUT_RULES: Final[tuple[SyncRule, ...]] = (
    SyncRule(
        ops=("_coalesce",),
        when=has_several,
        reason="thrust waits after each of its steps, and the number of elements is read",
        count=5,
        source="SparseCUDATensor.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_to_sparse",),
        when=on_device,
        reason="the number of elements of a sparse tensor is read",
        source="SparseCUDATensor.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("hspmm",),
        when=on_device,
        reason="thrust numbers the rows and waits",
        source="hspmm_out_sparse_cuda, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_sparse_sparse_matmul",),
        when=on_device,
        reason="the number of elements of the product is read",
        count=2,
        source="sparse_sparse_matmul_cuda_kernel, counted in a run of torch 2.13 over "
        "stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_softmax", "_sparse_log_softmax"),
        when=along_sparse("dim"),
        reason="the rows of a sparse tensor are grouped and counted with thrust",
        count=7,
        source="SoftMax.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data"),
        when=along_sparse("dim"),
        reason="the rows of a sparse tensor are grouped and counted with thrust",
        count=9,
        source="SoftMax.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_sum_backward",),
        when=keeps_sparse,
        reason="the indices of the gradient are looked up with thrust",
        source="SparseCUDATensorMath.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_to_sparse_semi_structured",),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="libtorch_cuda 2.13, masked_select",
    ),
    SyncRule(
        ops=("_cslt_sparse_mm", "_cslt_sparse_mm_search"),
        when=number_of("alpha"),
        reason="the factor is a GPU tensor, read with item()",
        source="cuSPARSELtOps.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=(
            "_nested_tensor_from_mask",
            "_nested_tensor_from_mask_left_aligned",
            "_nested_from_padded_tensor",
        ),
        when=on_device,
        reason="the sizes of nested tensors are kept on the CPU",
        source="libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_padded_dense_to_jagged_forward",),
        when=without("total_L"),
        reason="no total length: the last offset is read",
        source="_fbgemm_dense_to_jagged_forward_symint, libtorch_cuda 2.13",
    ),
)
"""Operations that only such tensors know."""

OF_EACH_ELEMENT: Final = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv"),
    *("expm1", "floor", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p"),
    *("nan_to_num", "pow", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin"),
    *("sinh", "sqrt", "tan", "tanh", "trunc"),
)
"""What is computed of elements once each is the only one of its place."""

SPARSE_RULES: Final[tuple[SyncRule, ...]] = (
    SyncRule(
        ops=(
            "mm",
            "mv",
            "addmm",
            "_sparse_addmm",
            "bmm",
            "hspmm",
            "_sparse_sparse_matmul",
            "_sparse_softmax",
            "_sparse_log_softmax",
            "norm",
            *OF_EACH_ELEMENT,
        ),
        when=uncoalesced,
        reason="the sparse tensor is coalesced first, in which thrust waits after each step",
        count=5,
        source="SparseTensorMath.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_sum", "sum"),
        when=sums_uncoalesced,
        reason="the sparse tensor is coalesced first, in which thrust waits after each step",
        count=5,
        source="SparseTensorMath.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_sum", "sum"),
        when=sums_some,
        reason="the sums are coalesced, in which thrust waits after each of its steps",
        count=5,
        source="SparseTensorMath.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("add", "add_", "sub", "sub_"),
        when=grows_beyond_itself,
        reason="a sum with more elements than places is coalesced, in which thrust waits "
        "after each of its steps",
        count=5,
        source="add_out_sparse_cuda, SparseCUDATensorMath.cu, counted in a run of torch "
        "2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("bmm",),
        when=is_sparse("self"),
        reason="where each matrix of the sparse tensor ends is read",
        source="bmm_out_sparse_cuda, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("index_select",),
        when=along_sparse("dim"),
        reason="the number of elements that are selected is read",
        source="index_select_sparse_cuda, libtorch_cuda 2.13",
    ),
)
"""Operations of dense tensors as well, looked at once there has been a sparse one."""


INDEXING: Final = (
    "index",
    "_unsafe_index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index_put",
)

SYNC_RULES: Final[tuple[SyncRule, ...]] = (
    SyncRule(
        ops=("_local_scalar_dense",),
        when=on_device,
        reason="the CPU reads one element",
        source="CUDAScalar.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("nonzero", "nonzero_numpy", "masked_select"),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="Nonzero.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_unique", "_unique2", "unique_consecutive"),
        when=of_elements,
        reason="the number of unique elements is read",
        source="UniqueCub.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("unique_dim", "unique_dim_consecutive", "unique_consecutive"),
        when=of_slices,
        reason="thrust compares and numbers the slices and waits, and their number is read",
        source="Unique.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("masked_scatter_backward",),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="TensorAdvancedIndexing.cpp, masked_select",
    ),
    SyncRule(
        ops=INDEXING,
        when=device_masks,
        reason="a boolean mask: the count of its true elements is read",
        source="IndexingUtils.h, test_sync_warning",
    ),
    SyncRule(
        ops=INDEXING,
        when=host_positions,
        reason="an index tensor on the CPU is copied to the GPU",
        source="IndexingUtils.h, test_sync_warning",
    ),
    SyncRule(
        ops=INDEXING,
        when=host_masks,
        reason="a mask on the CPU is copied to the GPU",
        source="pull request 156384, which ended it",
        until=(2, 9),
    ),
    SyncRule(
        ops=INDEXING,
        when=host_number,
        reason="a number from the CPU is copied to the GPU to be put there",
        copied=put_bytes,
        source="_index_put_impl_, libtorch_cuda 2.13; pull request 186486",
    ),
    SyncRule(
        ops=("masked_fill", "masked_fill_", "index_fill", "index_fill_"),
        when=named("value"),
        reason="the value is a GPU tensor, read with item()",
        source="masked_fill__cuda, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("repeat_interleave",),
        when=size_unknown,
        reason="no output_size: the sum and the sign of the repeats are read",
        count=2,
        source="Repeat.h, test_sync_warning",
    ),
    SyncRule(
        ops=("bincount",),
        when=not_empty,
        reason="the greatest element is read",
        source="SummaryOps.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("bincount",),
        when=signed,
        reason="the smallest element is copied to the CPU",
        read_back=element_bytes,
        source="SummaryOps.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("histc",),
        when=range_unknown,
        reason="min equals max: the range of the values is read",
        count=2,
        source="SummaryOps.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("isin",),
        when=test_set_is_large,
        reason="a large test set is sorted, with two calls of unique",
        count=2,
        source="TensorCompare.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("isin",),
        when=sorts_the_test_set,
        reason="the last element of a mask is set to a number on the CPU",
        source="isin_sorting, TensorCompare.cpp; set_item, TensorIndexing.h",
        copied=one_byte,
    ),
    SyncRule(
        ops=("searchsorted",),
        when=filled("sorter"),
        reason="the CPU checks both ends of the sorter",
        count=2,
        source="BucketizationUtils.h, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("segment_reduce",),
        when=lengths_checked,
        reason="the CPU checks the lengths",
        count=2,
        source="SegmentReduce.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("equal",),
        when=compares_elements,
        reason="the outcome of the comparison is read",
        source="Equal.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("allclose",),
        when=on_device,
        reason="the outcome of the comparison is read",
        source="TensorCompare.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("nanmedian",),
        when=without_dim,
        reason="the number of NaN is read",
        source="Sorting.cpp before 2.13, which indexes on the device",
        until=(2, 13),
    ),
    SyncRule(
        ops=("mode",),
        when=long_slices,
        reason="slices of more than 2048 elements are sorted with waits",
        kind=AuditKind.MAYBE,
        source="TensorModeKernel.cu",
    ),
    SyncRule(
        ops=("normal",),
        when=deviations_checked,
        reason="the CPU checks the deviations for negative ones",
        source="DistributionTemplates.h; torch 2.14 has _assert_async there",
        until=(2, 14),
    ),
    SyncRule(
        ops=("linspace", "logspace"),
        when=named("start", "end"),
        reason="an end of the range is read from the GPU",
        source="RangeFactories.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_ctc_loss", "_use_cudnn_ctc_loss", "ctc_loss"),
        when=named("input_lengths", "target_lengths"),
        reason="lengths on the GPU are copied to the CPU",
        source="LossCTC.cpp",
    ),
    SyncRule(
        ops=("_ctc_loss", "_ctc_loss_backward"),
        when=listed_lengths,
        reason="the lengths and where the targets begin are copied to the GPU",
        count=3,
        copied=length_bytes,
        source="LossCTC.cu, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("where",),
        when=host_numbers,
        reason="a number from the CPU is copied to the GPU",
        copied=number_bytes,
        source="TensorCompare.cpp, where_self_out",
    ),
    SyncRule(
        ops=("tensor_split",),
        when=named("tensor_indices_or_sections"),
        reason="the places to split at are needed on the CPU",
        source="TensorShape.cpp",
    ),
    SyncRule(
        ops=("_pack_padded_sequence",),
        when=named("lengths"),
        reason="the lengths are needed on the CPU",
        source="PackedSequence.cpp",
    ),
    SyncRule(
        ops=("_linalg_check_errors",),
        when=on_device,
        reason="the error code is read (the variants named *_ex do not)",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13; that of no matrix as well",
    ),
    SyncRule(
        ops=("cholesky",),
        when=not_empty,
        reason="the error code is read (the variants named *_ex do not)",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_linalg_eigh", "_linalg_svd", "linalg_pinv"),
        when=not_empty,
        reason="the error codes of the decomposition are read",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("linalg_matrix_sqrth",),
        when=not_empty,
        reason="the error codes of the decomposition inside are read",
        source="counted in a run of torch 2.14 over stub CUDA",
        since=(2, 14),
    ),
    SyncRule(
        ops=("linalg_polar",),
        when=not_empty,
        reason="the error codes of the decomposition inside are read",
        source="torch/_native/ops/polar: an SVD, unless nvmath-python is there",
        since=(2, 15),
    ),
    SyncRule(
        ops=("linalg_polar",),
        when=not_empty,
        reason="whether the decomposition inside converged is copied to the CPU",
        read_back=code_bytes,
        source="torch/_native/ops/polar, counted in a run of torch 2.15 over stub CUDA",
        since=(2, 15),
    ),
    SyncRule(
        ops=("_linalg_svd", "linalg_pinv"),
        when=judges_convergence,
        reason="whether the decomposition converged is copied to the CPU",
        read_back=code_bytes,
        source="BatchLinearAlgebraLib.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_eig",),
        when=on_device,
        reason="whether the eigenvalues are real is read",
        source="BatchLinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_eig", "_linalg_eigvals"),
        when=on_device,
        reason="whether the input is finite is read, and the error codes",
        count=2,
        source="BatchLinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_lu_factor_ex", "linalg_lu"),
        when=factored_by_magma,
        reason="matrices that are large, many or not square are factored by MAGMA, which waits",
        source="BatchLinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA; "
        "cuSOLVER factors all of them since pull request 190661",
        until=(2, 15),
    ),
    SyncRule(
        ops=("linalg_ldl_solve",),
        when=not_empty,
        reason="cuSOLVER is waited for",
        source="BatchLinearAlgebraLib.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_lstsq",),
        when=not_empty,
        reason="the error codes are read",
        source="BatchLinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=one_matrix,
        reason="the norm decides the degree, so it is copied to the CPU",
        read_back=element_bytes,
        source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=one_matrix,
        reason="the place of the matrix is copied to the GPU",
        copied=place_bytes,
        source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=several_matrices,
        reason="matrices are sorted by norm with nonzero(), an interval a time",
        count=6,
        source="LinearAlgebra.cpp, counted in a run",
    ),
    SyncRule(
        ops=(
            "_fused_moving_avg_obs_fq_helper",
            "_fake_quantize_learnable_per_tensor_affine",
            "_fake_quantize_learnable_per_channel_affine",
            "quantize_per_tensor_dynamic",
        ),
        when=on_device,
        reason="the observer's state is read",
        source="libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("fake_quantize_per_channel_affine_cachemask",),
        when=whole_numbers("zero_point"),
        reason="the CPU checks the smallest and the greatest zero point",
        count=2,
        source="fake_quant_per_channel_affine.cpp, counted in a run of torch 2.13 over "
        "stub CUDA",
    ),
    SyncRule(
        ops=("quantize_per_channel",),
        when=named("zero_points"),
        reason="the CPU checks the zero points",
        source="check_zero_points_cuda, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("quantize_per_tensor",),
        when=named("scale", "zero_point"),
        reason="a parameter of the quantiser is read with item()",
        source="QTensor.cpp",
    ),
    SyncRule(
        ops=("_grouped_mm",),
        when=named("offs"),
        reason="GPUs without a grouped kernel loop over offsets that the CPU reads",
        kind=AuditKind.MAYBE,
        source="_grouped_mm_fallback, libtorch_cuda 2.13",
    ),
)
"""Operations in none of these tables run without a wait, as far as torch's sources say.

Copies between host and device have their own table in ``transfers``.
"""


def rules_by_op(
    rules: Iterable[SyncRule] = (*SYNC_RULES, *LAYOUT_RULES, *SPARSE_RULES),
    version: str = torch.__version__,
) -> Mapping[str, tuple[SyncRule, ...]]:
    """Return the *rules* that apply to torch *version*, by operation."""
    release = release_of(version)
    found: dict[str, tuple[SyncRule, ...]] = {}
    for rule in rules:
        if rule.since <= release and (rule.until is None or release < rule.until):
            for op in rule.ops:
                found[op] = (*found.get(op, ()), rule)
    return found


def release_of(version: str) -> tuple[int, int]:
    """Major and minor number of a version of torch."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
