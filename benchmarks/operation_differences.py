"""Operations in which the simulated GPU and CUDA are known to differ, and why.

The comparison ends red for one that is not here, and for one that has become equal. Read
with torch 2.13 over stub CUDA; the files are those of torch's source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


DIFFERENCES: Final[Mapping[str, str]] = {
    "_chunk_cat": "addresses and sizes of the tensors are packed on the CPU into pinned "
    "memory and copied without a wait (`_chunk_cat_cuda` in TensorShape.cu): only bytes differ",
    "matrix_exp": "its degree follows the norm, and kernels of the stub compute nothing, so that "
    "it reads as 0 (LinearAlgebra.cpp); with right values, those of the mirror, both agree",
}
"""By operation: what in torch's source makes the difference."""

_JITERATOR: Final = "NVRTC compiles its kernel from C++; nothing on the CPU runs that"
_NOT_ON_CUDA: Final = "CUDA has no kernel for it"
_BY_ITS_NAME: Final = (
    "called by the name of the kernel, which nothing on the CPU runs in its place; "
    "`scaled_dot_product_attention`, which calls it, is judged"
)

UNJUDGED: Final[Mapping[str, str]] = {
    "histogram": _NOT_ON_CUDA,
    "histogramdd": _NOT_ON_CUDA,
    "istft": "it raises where the window that it sums up is zero, and kernels of the stub "
    "compute nothing (SpectralOps.cpp)",
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "sparse.mm.reduce": _NOT_ON_CUDA,
    "sparse.sampled_addmm": "compressed layouts are not judged by the simulated GPU",
    "torch.ops.aten._efficient_attention_forward": _BY_ITS_NAME,
    "torch.ops.aten._flash_attention_forward": _BY_ITS_NAME,
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": _NOT_ON_CUDA,
}
"""By operation: why one side, or both, cannot be asked."""
