"""Which operations make the host wait on CUDA: one table, a row a claim.

Sources of the claims: "libtorch_cuda 2.13" is the disassembly of the 2.13.0+cu130
wheel, in which the named function calls a CUDA synchronisation; a header or file name
is torch's source; "test_sync_warning" is torch's own test of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Final

import torch

from .conditions import compares_elements
from .conditions import device_masks
from .conditions import host_masks
from .conditions import host_number
from .conditions import host_positions
from .conditions import lengths_checked
from .conditions import named
from .conditions import not_empty
from .conditions import on_device
from .conditions import range_unknown
from .conditions import size_unknown
from .conditions import test_set_is_large
from .conditions import without_dim
from .record import AuditKind
from .rule import Rule
from .sparse_rules import LAYOUT_RULES
from .sparse_rules import SPARSE_RULES


INDEXING: Final = (
    "index",
    "_unsafe_index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index_put",
)

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        ops=("_local_scalar_dense",),
        when=on_device,
        reason="one element is read by the host",
        source="CUDAScalar.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("nonzero", "nonzero_numpy", "masked_select"),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="Nonzero.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=(
            "_unique",
            "_unique2",
            "unique_consecutive",
            "unique_dim",
            "unique_dim_consecutive",
        ),
        when=not_empty,
        reason="the number of unique elements is read",
        source="UniqueCub.cu, Unique.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("masked_scatter_backward",),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="TensorAdvancedIndexing.cpp, masked_select",
    ),
    Rule(
        ops=INDEXING,
        when=device_masks,
        reason="a boolean mask: the count of its true elements is read",
        source="IndexingUtils.h, test_sync_warning",
    ),
    Rule(
        ops=INDEXING,
        when=host_positions,
        reason="an index tensor on the host is copied to the device",
        source="IndexingUtils.h, test_sync_warning",
    ),
    Rule(
        ops=INDEXING,
        when=host_masks,
        reason="a mask on the host is copied to the device",
        source="pull request 156384, which ended it",
        until=(2, 9),
    ),
    Rule(
        ops=INDEXING,
        when=host_number,
        reason="a number from the host is copied to the device to be put there",
        source="_index_put_impl_, libtorch_cuda 2.13; pull request 186486",
    ),
    Rule(
        ops=("masked_fill", "masked_fill_", "index_fill", "index_fill_"),
        when=named("value"),
        reason="the value is a device tensor, read with item()",
        source="masked_fill__cuda, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("repeat_interleave",),
        when=size_unknown,
        reason="no output_size: the sum and the sign of the repeats are read",
        count=2,
        source="Repeat.h, test_sync_warning",
    ),
    Rule(
        ops=("bincount",),
        when=on_device,
        reason="the least and the greatest element are read",
        count=2,
        source="SummaryOps.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("histc",),
        when=range_unknown,
        reason="min equals max: the range of the values is read",
        count=2,
        source="SummaryOps.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("isin",),
        when=test_set_is_large,
        reason="a large test set is sorted, with two calls of unique",
        count=2,
        source="TensorCompare.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("searchsorted",),
        when=named("sorter"),
        reason="both ends of the sorter are checked by the host",
        count=2,
        source="BucketizationUtils.h, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("segment_reduce",),
        when=lengths_checked,
        reason="the lengths are checked by the host",
        count=2,
        source="SegmentReduce.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("equal",),
        when=compares_elements,
        reason="the outcome of the comparison is read",
        source="Equal.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("allclose",),
        when=on_device,
        reason="the outcome of the comparison is read",
        source="TensorCompare.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("nanmedian",),
        when=without_dim,
        reason="the number of NaN is read",
        source="Sorting.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("mode",),
        when=on_device,
        reason="slices of more than 2048 elements are sorted with waits",
        kind=AuditKind.MAYBE,
        source="TensorModeKernel.cu",
    ),
    Rule(
        ops=("normal",),
        when=named("std"),
        reason="the deviations are checked for negative ones by the host",
        source="DistributionTemplates.h",
    ),
    Rule(
        ops=("linspace", "logspace"),
        when=named("start", "end"),
        reason="an end of the range is read from the device",
        source="RangeFactories.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_ctc_loss", "_use_cudnn_ctc_loss", "ctc_loss"),
        when=named("input_lengths", "target_lengths"),
        reason="lengths on the device are copied to the host",
        source="LossCTC.cpp",
    ),
    Rule(
        ops=("tensor_split",),
        when=named("tensor_indices_or_sections"),
        reason="the places to split at are needed on the host",
        source="TensorShape.cpp",
    ),
    Rule(
        ops=("_pack_padded_sequence",),
        when=named("lengths"),
        reason="the lengths are needed on the host",
        source="PackedSequence.cpp",
    ),
    Rule(
        ops=("_linalg_check_errors", "cholesky", "cholesky_inverse"),
        when=on_device,
        reason="the error code is read (the variants named *_ex do not)",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_linalg_eigh", "_linalg_svd", "linalg_pinv"),
        when=on_device,
        reason="the error codes of the decomposition are read",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("linalg_eig", "_linalg_eigvals"),
        when=on_device,
        reason="runs on the host, with LAPACK",
        source="BatchLinearAlgebra.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=(
            "linalg_lstsq",
            "linalg_ldl_factor_ex",
            "linalg_ldl_solve",
            "linalg_lu_solve",
        ),
        when=on_device,
        reason="the library behind it may read pivots or error codes",
        kind=AuditKind.MAYBE,
        source="BatchLinearAlgebraLib.cpp",
    ),
    Rule(
        ops=("linalg_matrix_exp",),
        when=on_device,
        reason="matrices are sorted by norm with nonzero(), an interval a time",
        count=6,
        source="LinearAlgebra.cpp, counted in a run",
    ),
    Rule(
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
    Rule(
        ops=("quantize_per_channel",),
        when=named("zero_points"),
        reason="the zero points are checked by the host",
        source="check_zero_points_cuda, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("quantize_per_tensor",),
        when=named("scale", "zero_point"),
        reason="a parameter of the quantiser is read with item()",
        source="QTensor.cpp",
    ),
    Rule(
        ops=("_grouped_mm",),
        when=named("offs"),
        reason="GPUs without a grouped kernel loop over offsets read by the host",
        kind=AuditKind.MAYBE,
        source="_grouped_mm_fallback, libtorch_cuda 2.13",
    ),
)
"""What is in neither this table nor that of ``sparse_rules`` runs without a wait, as far as torch's sources tell.

Copies between host and device have their own table in ``transfers``.
"""


def rules_by_op(
    rules: Iterable[Rule] = (*RULES, *LAYOUT_RULES, *SPARSE_RULES),
    version: str = torch.__version__,
) -> Mapping[str, tuple[Rule, ...]]:
    """Those of *rules* that hold in torch *version*, by the name of the operation."""
    release = release_of(version)
    found: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        if rule.since <= release and (rule.until is None or release < rule.until):
            for op in rule.ops:
                found[op] = (*found.get(op, ()), rule)
    return found


def release_of(version: str) -> tuple[int, int]:
    """Major and minor number of a version of torch."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
