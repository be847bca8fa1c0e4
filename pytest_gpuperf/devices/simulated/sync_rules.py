"""Operations that make the host wait on CUDA: one table, a row per claim.

Sources of the claims: "libtorch_cuda 2.13" is the disassembly of the 2.13.0+cu130
wheel, in which the named function calls a CUDA synchronisation; a header or file name
is torch's source; "test_sync_warning" is torch's own test of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import torch

from ...model.finding import FindingKind
from .layout_rules import LAYOUT_RULES, SPARSE_RULES
from .sync_conditions import (
    COEFFICIENTS,
    HIGHEST_DEGREE,
    SyncRule,
    code_bytes,
    compares_elements,
    deviations_checked,
    device_masks,
    element_bytes,
    errors_checked,
    factored_by_magma,
    filled,
    host_masks,
    host_number,
    host_numbers,
    host_positions,
    judges_convergence,
    length_bytes,
    lengths_checked,
    listed_lengths,
    long_slices,
    named,
    not_empty,
    number_bytes,
    numbers,
    of_degree,
    of_elements,
    of_slices,
    on_device,
    one_byte,
    one_matrix,
    one_of_highest_degree,
    place_bytes,
    put_bytes,
    range_unknown,
    signed,
    size_unknown,
    sorts_the_test_set,
    test_set_is_large,
    two_places,
    whole_numbers,
)


INDEXING: Final = tuple(
    "index _unsafe_index index_put index_put_ _index_put_impl_ "
    "_unsafe_index_put".split()
)

SYNC_RULES: Final[tuple[SyncRule, ...]] = (
    SyncRule(
        ops=("_local_scalar_dense",),
        when=on_device,
        reason="the CPU reads one element",
        source="CUDAScalar.cu, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=(
            *("nonzero", "nonzero_numpy", "masked_select", "masked_scatter_backward"),
            "_to_sparse_semi_structured",
        ),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="Nonzero.cu, TensorAdvancedIndexing.cpp, libtorch_cuda 2.13",
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
        reason="the places of a mask on the CPU are copied to the GPU",
        source="pull request 156384, which ended it; counted in a run of torch 2.8 over stub CUDA",
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
        source="TensorCompare.cpp, TensorIndexing.h; a fill since pull request 188330",
        copied=one_byte,
        until=(2, 15),
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
        ops=("mode",),
        when=long_slices,
        reason="slices of more than 2048 elements are sorted with syncs",
        kind=FindingKind.INCONCLUSIVE,
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
        ops=(
            "_linalg_check_errors",
            *(
                f"linalg_{name}_ex"
                for name in "inv cholesky lu_factor ldl_factor".split()
            ),
            "_linalg_solve_ex",
        ),
        when=errors_checked,
        reason="the error code is read (without check_errors, the variants named *_ex do not)",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13; that of no matrix as well",
    ),
    SyncRule(
        ops=("cholesky", "linalg_lstsq", "_linalg_eigh", "_linalg_svd", "linalg_pinv"),
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
        source="BatchLinearAlgebra.cpp; cuSOLVER factors all since pull request 190661",
        until=(2, 15),
    ),
    SyncRule(
        ops=("linalg_ldl_solve",),
        when=not_empty,
        reason="cuSOLVER is waited for",
        source="BatchLinearAlgebraLib.cpp, counted in a run of torch 2.13 over stub CUDA",
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
    *(
        SyncRule(
            ops=("linalg_matrix_exp",),
            when=of_degree(degree),
            reason="coefficients of the polynomial are copied to the GPU",
            copied=numbers(count),
            source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
        )
        for degree, counts in COEFFICIENTS.items()
        for count in counts
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=of_degree(HIGHEST_DEGREE),
        reason="the GPU counts how many matrices are squared how often, which is read",
        source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=of_degree(HIGHEST_DEGREE),
        reason="how often matrices are squared is copied to the CPU, with their number",
        read_back=two_places,
        source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("linalg_matrix_exp",),
        when=one_of_highest_degree,
        reason="the place of the matrix is copied to the GPU once more",
        copied=place_bytes,
        source="LinearAlgebra.cpp, counted in a run of torch 2.13 over stub CUDA",
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
        source="fake_quant_per_channel_affine.cpp, run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("quantize_per_tensor", "quantize_per_channel"),
        when=named("scale", "zero_point", "zero_points"),
        reason="a parameter of the quantiser is read",
        source="QTensor.cpp; check_zero_points_cuda, libtorch_cuda 2.13",
    ),
    SyncRule(
        ops=("_grouped_mm",),
        when=named("offs"),
        reason="GPUs without a grouped kernel loop over offsets that the CPU reads",
        kind=FindingKind.INCONCLUSIVE,
        source="_grouped_mm_fallback, libtorch_cuda 2.13",
    ),
)
"""Operations in none of these tables run without a sync, as far as torch's sources say.

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
