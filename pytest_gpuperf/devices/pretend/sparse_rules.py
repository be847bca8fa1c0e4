"""Which operations on sparse and nested tensors make the host wait on CUDA.

The sources are named as in ``rules``. Compressed layouts (CSR and its kin) are not judged.
"""

from __future__ import annotations

from typing import Final

from .conditions import on_device
from .conditions import without
from .rule import Rule
from .sparse_conditions import along_sparse
from .sparse_conditions import has_several
from .sparse_conditions import is_sparse
from .sparse_conditions import keeps_sparse
from .sparse_conditions import number_of
from .sparse_conditions import uncoalesced
from .sparse_conditions import unflattened


LAYOUT_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        ops=("_coalesce",),
        when=has_several,
        reason="the number of elements of a sparse tensor is read",
        source="SparseCUDATensor.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_to_sparse",),
        when=on_device,
        reason="the number of elements of a sparse tensor is read",
        source="SparseCUDATensor.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("hspmm",),
        when=on_device,
        reason="thrust numbers the rows and waits",
        source="hspmm_out_sparse_cuda, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_sparse_sparse_matmul",),
        when=on_device,
        reason="the number of elements of the product is read",
        source="sparse_sparse_matmul_cuda_kernel, libtorch_cuda 2.13",
    ),
    Rule(
        ops=(
            "_sparse_softmax",
            "_sparse_log_softmax",
            "_sparse_softmax_backward_data",
            "_sparse_log_softmax_backward_data",
        ),
        when=along_sparse("dim"),
        reason="the rows of a sparse tensor are grouped and counted with thrust",
        source="SoftMax.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_sparse_sum_backward",),
        when=keeps_sparse,
        reason="the indices of the gradient are looked up with thrust",
        source="SparseCUDATensorMath.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_to_sparse_semi_structured",),
        when=on_device,
        reason="the size of the result depends on values: their count is read",
        source="libtorch_cuda 2.13, masked_select",
    ),
    Rule(
        ops=("_cslt_sparse_mm", "_cslt_sparse_mm_search"),
        when=number_of("alpha"),
        reason="the factor is a device tensor, read with item()",
        source="cuSPARSELtOps.cpp, libtorch_cuda 2.13",
    ),
    Rule(
        ops=(
            "_nested_tensor_from_mask",
            "_nested_tensor_from_mask_left_aligned",
            "_nested_from_padded_tensor",
        ),
        when=on_device,
        reason="the sizes of nested tensors live on the host",
        source="libtorch_cuda 2.13",
    ),
    Rule(
        ops=("_padded_dense_to_jagged_forward",),
        when=without("total_L"),
        reason="no total length: the last offset is read",
        source="_fbgemm_dense_to_jagged_forward_symint, libtorch_cuda 2.13",
    ),
)
"""Operations that only such tensors know."""

SPARSE_RULES: Final[tuple[Rule, ...]] = (
    Rule(
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
        ),
        when=uncoalesced,
        reason="the sparse tensor is coalesced first: the number of its elements is read",
        source="SparseCUDATensorMath.cu, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("bmm",),
        when=is_sparse("self"),
        reason="where each matrix of the sparse tensor ends is read",
        source="bmm_out_sparse_cuda, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("index_select",),
        when=along_sparse("dim"),
        reason="the number of elements that are selected is read",
        source="index_select_sparse_cuda, libtorch_cuda 2.13",
    ),
    Rule(
        ops=("add", "add_", "_to_dense"),
        when=unflattened,
        reason="a factor for each dimension is copied to the device to flatten indices",
        source="SparseTensorUtils.cpp, flatten_indices",
    ),
)
"""Operations of dense tensors as well, looked at once there has been a sparse one."""
