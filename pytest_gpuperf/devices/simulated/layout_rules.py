"""Operations on sparse and nested tensors that make the host wait on CUDA.

The sources are named as in ``sync_rules``. Compressed layouts (CSR and its kin) are not
judged.
"""

from __future__ import annotations

from typing import Final

from .sync_conditions import (
    SyncRule,
    along_sparse,
    coalesces_for_sums,
    grows_beyond_itself,
    has_several,
    is_nested,
    is_sparse,
    keeps_sparse,
    number_of,
    on_device,
    uncoalesced,
    without,
)


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
        source="sparse_sparse_matmul_cuda_kernel, run of torch 2.13 over stub CUDA",
    ),
    *(
        SyncRule(
            ops=(f"_sparse_softmax{step}", f"_sparse_log_softmax{step}"),
            when=along_sparse("dim"),
            reason="the rows of a sparse tensor are grouped and counted with thrust",
            count=count,
            source="SoftMax.cu, counted in a run of torch 2.13 over stub CUDA",
        )
        for step, count in {"": 7, "_backward_data": 9}.items()
    ),
    SyncRule(
        ops=("_sparse_sum_backward",),
        when=keeps_sparse,
        reason="the indices of the gradient are looked up with thrust",
        source="SparseCUDATensorMath.cu, libtorch_cuda 2.13",
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
        ops=("to_padded_tensor",),
        when=is_nested,
        reason="the sizes of nested tensors are copied to the GPU",
        source="counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
        when=is_nested,
        reason="the sizes of nested tensors are copied to the GPU, for padding and back",
        count=2,
        source="counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_padded_dense_to_jagged_forward",),
        when=without("total_L"),
        reason="no total length: the last offset is read",
        source="_fbgemm_dense_to_jagged_forward_symint, libtorch_cuda 2.13",
    ),
)
"""Operations that only such tensors know."""

OF_EACH_ELEMENT: Final = tuple(
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf "
    "isnan isneginf isposinf log1p nan_to_num pow rad2deg relu round sgn sign "
    "signbit sin sinh sqrt tan tanh trunc".split()
)
"""What is computed of elements once each is the only one of its place."""

SPARSE_RULES: Final[tuple[SyncRule, ...]] = (
    SyncRule(
        ops=tuple(
            "mm mv addmm _sparse_addmm bmm hspmm _sparse_sparse_matmul "
            "_sparse_softmax _sparse_log_softmax norm".split()
        )
        + OF_EACH_ELEMENT,
        when=uncoalesced,
        reason="the sparse tensor is coalesced first, in which thrust waits after each step",
        count=5,
        source="SparseTensorMath.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("_sparse_sum", "sum"),
        when=coalesces_for_sums,
        reason="the tensor or its sums are coalesced, in which thrust waits after each step",
        count=5,
        source="SparseTensorMath.cpp, counted in a run of torch 2.13 over stub CUDA",
    ),
    SyncRule(
        ops=("add", "add_", "sub", "sub_"),
        when=grows_beyond_itself,
        reason="a sum with more elements than places is coalesced, in which thrust waits "
        "after each of its steps",
        count=5,
        source="SparseCUDATensorMath.cu, counted in a run of torch 2.13 over stub CUDA",
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
