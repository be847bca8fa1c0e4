"""Attention by the kernel that CUDA would choose: the fused ones keep no weights."""

from __future__ import annotations

import math
from enum import Enum
from enum import auto
from typing import Any
from typing import Final

import torch

from .substitutes import HALVES


class Backend(Enum):
    """Which of torch's kernels computes an attention."""

    MATH = auto()
    FLASH = auto()
    EFFICIENT = auto()


FLASH_HEAD: Final = 256
"""The widest head of the flash kernel (sdp_utils.cpp)."""

FLASH_ALIGNMENT: Final = 8
"""Heads are padded to a multiple of this for it (attention.cpp)."""

MASK_ALIGNMENT: Final = 8
"""Rows of a mask are padded to a multiple of this for the other (attention.cpp)."""

EFFICIENT_ALIGNMENT: Final = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}
"""What the width of a head must be a multiple of (sdp_utils.cpp, capability 8.0 on)."""

_aten = torch.ops.aten
_composite = _aten.scaled_dot_product_attention.default
_flash = _aten._scaled_dot_product_flash_attention.default  # noqa: SLF001, what CUDA calls
_efficient = _aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001


def backend(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    *,
    enable_gqa: bool,
) -> Backend:
    """Choose as sdp_utils.cpp of torch 2.13 does, cuDNN's kernel left aside.

    It would save the same as the flash kernel.
    """
    if not (query.dim() == key.dim() == value.dim() == 4):  # noqa: PLR2004, batch, head, token, feature
        return Backend.MATH
    width = query.size(-1)
    same_width = width == key.size(-1) == value.size(-1)
    if (
        torch._C._get_flash_sdp_enabled()  # noqa: SLF001, where torch.nn.attention keeps it
        and mask is None
        and query.dtype in HALVES
        and same_width
        and width <= FLASH_HEAD
    ):
        return Backend.FLASH
    alignment = EFFICIENT_ALIGNMENT.get(query.dtype)
    if (
        torch._C._get_mem_efficient_sdp_enabled()  # noqa: SLF001
        and alignment is not None
        and not enable_gqa
        and not (width % alignment or value.size(-1) % alignment)
    ):
        return Backend.EFFICIENT
    return Backend.MATH


def attention(  # noqa: PLR0913, PLR0917, torch's
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Kernel of ``aten::scaled_dot_product_attention`` on the pretend GPU.

    It does what torch's own does for a CUDA tensor (attention.cpp).
    """
    __tracebackhide__ = True
    tensors = (query, key, value)
    chosen = backend(*tensors, attn_mask, enable_gqa=enable_gqa)
    if chosen is Backend.FLASH:
        return _by_flash(tensors, (dropout_p, is_causal), scale)
    if chosen is Backend.EFFICIENT:
        keeps_sum = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        bias = _bias(attn_mask, query, key) if attn_mask is not None else None
        options = (bias, keeps_sum, dropout_p, is_causal)
        return _efficient(*tensors, *options, scale=scale)[0]
    composed = {"scale": scale, "enable_gqa": enable_gqa}
    return _composite.decompose(*tensors, attn_mask, dropout_p, is_causal, **composed)


def _by_flash(
    tensors: tuple[Any, Any, Any], options: tuple[float, bool], scale: float | None
) -> Any:
    width = tensors[0].size(-1)
    scale = scale if scale is not None else 1 / math.sqrt(width)
    padded = [_padded(tensor) for tensor in tensors]
    output = _flash(*padded, *options, False, scale=scale)[0]  # noqa: FBT003, return_debug_mask
    return output if output.size(-1) == width else output[..., :width]


def _padded(tensor: Any) -> Any:
    missing = -tensor.size(-1) % FLASH_ALIGNMENT
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """Make *mask* numbers, its rows aligned, one a batch and head."""
    if mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, -math.inf).to(query.dtype)
    columns = mask.size(-1)
    if columns % MASK_ALIGNMENT:
        mask = torch.nn.functional.pad(mask, (0, -columns % MASK_ALIGNMENT))
        mask = mask[..., :columns]
    return mask.expand(*query.shape[:3], key.size(2))
