"""RMSNorm as CUDA's fused kernel does it, which keeps one number a row."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch

from .substitutes import HALVES


def rms_norm(
    tensor: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None
) -> tuple[Any, Any]:
    """What ``aten::_fused_rms_norm`` gives: the result and the rows' factors."""
    dims = _dims(normalized_shape)
    wide = _wide(tensor)
    eps = eps if eps is not None else torch.finfo(wide.dtype).eps
    factor = (wide.square().mean(dims, keepdim=True) + eps).rsqrt()
    normed = wide * factor
    normed = normed * weight if weight is not None else normed
    return normed.to(tensor.dtype), factor


def rms_norm_backward(  # noqa: PLR0913, PLR0917, torch's
    grad: Any,
    tensor: Any,
    normalized_shape: Sequence[int],
    factor: Any,
    weight: Any,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    """What ``aten::_fused_rms_norm_backward`` gives."""
    dims = _dims(normalized_shape)
    normed, wide = _wide(tensor) * factor, _wide(grad)
    weighted = wide * weight if weight is not None else wide
    projected = (weighted * normed).mean(dims, keepdim=True)
    of_tensor = (factor * (weighted - normed * projected)).to(tensor.dtype)
    of_weight = None
    if weight is not None and output_mask[1]:
        of_weight = (wide * normed).sum_to_size(weight.shape).to(weight.dtype)
    return of_tensor if output_mask[0] else None, of_weight


def _dims(normalized_shape: Sequence[int]) -> list[int]:
    return list(range(-len(normalized_shape), 0))


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in HALVES else tensor


FUSED: Final[Mapping[str, Callable[..., Any]]] = {
    "_fused_rms_norm": rms_norm,
    "_fused_rms_norm_backward": rms_norm_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""


def fused_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Kernels that keep torch's core from composing what CUDA fuses.

    Ghosts never reach them, as their own dispatch comes first.
    """
    if hasattr(torch.ops.aten, "_fused_rms_norm"):
        yield "_fused_rms_norm", rms_norm
