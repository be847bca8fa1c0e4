"""Attention by the kernel that CUDA would choose: the fused ones keep no weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import torch

from .kernels import HALVES, in_float32, zeros
from .operation import OpCall, Rule, Temporaries, copies_of, nbytes_of
from .patches import Patch


# Results of CUDA's fused attention kernels, computed on the host.
#
# The kernels have no counterpart on the CPU that saves the same tensors. Here the
# weights are computed, used and forgotten inside one operation, and again in backward.

_aten = torch.ops.aten
_flash = _aten._scaled_dot_product_flash_attention.default  # noqa: SLF001, what CUDA calls
_efficient = _aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001
_flash_backward = _aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001
_cudnn = _aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001
_cudnn_backward = _aten._scaled_dot_product_cudnn_attention_backward.default  # noqa: SLF001
_efficient_backward = _aten._scaled_dot_product_efficient_attention_backward.default  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """One attention: everything but the tensors that backward gives gradients to."""

    bias: Any
    is_causal: bool
    scale: float | None
    dropout_p: float
    seed: int

    def scores(self, query: Any, key: Any) -> Any:
        """Products of queries and keys, scaled, biased and masked."""
        scores = query @ key.transpose(-2, -1) * self.factor(query)
        if self.bias is not None:
            scores = scores + self.bias
        if self.is_causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        return scores

    def factor(self, query: Any) -> float:
        """Factor of the products."""
        return self.scale if self.scale is not None else 1 / math.sqrt(query.size(-1))

    def kept(self, like: Any) -> Any:
        """What dropout multiplies each weight by, the same whenever it is asked."""
        if not self.dropout_p:
            return torch.ones(())
        # Backward must drop the same weights as forward did, and only the seed is saved
        # in between, as by the fused kernels.
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(like.shape, generator=generator)
        return (drawn >= self.dropout_p) / (1 - self.dropout_p)


def flash_attention(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_flash_attention`` gives, on the host."""
    dropout_p, is_causal, _ = _completed(args[3:], 0.0, False, False)  # noqa: FBT003, torch's
    made = _made(_flash, args, {"scale": scale})
    if CUDNN.is_chosen:
        # The state of cuDNN's kernel is two numbers.
        made = (*made[:6], *(made[7].new_zeros(()) for _ in range(2)), *made[8:])
    query, key, value = args[:3]
    if not query.is_meta:
        weighing = _weighing(None, dropout_p, scale, None, is_causal=is_causal)
        _attend(weighing, (query, key, value), output=made[0], log_sum=made[1])
        # The output in which CUDA's kernel returns its random state: backward finds the
        # seed there.
        made[6].fill_(weighing.seed)
    return made


def flash_attention_backward(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_flash_attention_backward`` gives, on the host."""
    made = _made(_flash_backward, args, {"scale": scale})
    grad, *tensors = args[:4]
    dropout_p, is_causal, seed = args[10:13]
    if not grad.is_meta:
        weighing = _weighing(None, dropout_p, scale, seed, is_causal=is_causal)
        _fill(made, _gradients(weighing, grad, *tensors))
    return made


def efficient_attention(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_efficient_attention`` gives, on the host."""
    made = _made(_efficient, args, {"scale": scale})
    query, key, value, bias, keeps_sum = args[:5]
    if not query.is_meta:
        dropout_p, is_causal = _completed(args[5:], 0.0, False)  # noqa: FBT003, torch's
        weighing = _weighing(bias, dropout_p, scale, None, is_causal=is_causal)
        log_sum = made[1] if keeps_sum else None
        _attend(weighing, (query, key, value), output=made[0], log_sum=log_sum)
        # As above, by this kernel's order of outputs.
        made[2].fill_(weighing.seed)
        return made
    # Seed and offset are the host's, unless a graph is captured; see "Seed and Offset"
    # in torch's attention.cu.
    on_host = [torch.zeros((), dtype=torch.long) for _ in range(2)]
    return (*made[:2], *on_host)


def efficient_attention_backward(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_efficient_attention_backward`` gives."""
    made = _made(_efficient_backward, args, {"scale": scale})
    grad, *tensors, bias = args[:5]
    (is_causal,) = _completed(args[11:], False)  # noqa: FBT003, torch's
    if not grad.is_meta:
        weighing = _weighing(bias, args[9], scale, args[7], is_causal=is_causal)
        _fill(made, _gradients(weighing, grad, *tensors))
    return made


def cudnn_attention(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_cudnn_attention`` gives, on the host."""
    made = _made(_cudnn, args, {"scale": scale})
    query, key, value, bias, keeps_sum = args[:5]
    if not query.is_meta:
        dropout_p, is_causal, _ = _completed(args[5:], 0.0, False, False)  # noqa: FBT003, torch's
        weighing = _weighing(bias, dropout_p, scale, None, is_causal=is_causal)
        log_sum = made[1].view(query.shape[:-1]) if keeps_sum else None
        _attend(weighing, (query, key, value), output=made[0], log_sum=log_sum)
        made[6].fill_(weighing.seed)
    return made


def cudnn_attention_of_lengths(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_cudnn_attention_forward`` gives to sequences of one length."""
    return cudnn_attention(*args[:4], *args[8:], scale=scale)


def cudnn_attention_backward(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_cudnn_attention_backward`` gives, on the host."""
    made = _made(_cudnn_backward, args, {"scale": scale})
    grad, *tensors = args[:4]
    if not grad.is_meta:
        weighing = _weighing(args[8], args[13], scale, args[6], is_causal=args[14])
        _fill(made, _gradients(weighing, grad, *tensors))
    return made


def _completed(given: Sequence[Any], *defaults: Any) -> tuple[Any, ...]:
    """Arguments as given, and torch's defaults for those that were not."""
    return (*given, *defaults[len(given) :])


def _made(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Tensors of the sizes and strides that the kernel gives."""
    on_meta = args[1].is_meta
    return func(*args, **kwargs) if on_meta else zeros(func, args, kwargs)


def _weighing(
    bias: Any, dropout_p: float, scale: float | None, state: Any, *, is_causal: bool
) -> Weighing:
    """How scores are weighed, with the seed in *state*, or a new one if there is none."""
    new = int(torch.randint(2**31, ())) if dropout_p and state is None else 0
    return Weighing(
        bias=bias,
        is_causal=is_causal,
        scale=scale,
        dropout_p=dropout_p,
        seed=new if state is None else int(state.flatten()[0]),
    )


def _attend(
    weighing: Weighing, tensors: tuple[Any, Any, Any], *, output: Any, log_sum: Any
) -> None:
    query, key, value = _wide_inputs(*tensors)
    scores = weighing.scores(query, key)
    weights = _softmax(scores)
    output.copy_((weights * weighing.kept(weights)) @ value)
    if log_sum is not None:
        # The efficient kernel pads the rows of its sums.
        log_sum[..., : scores.size(-2)].copy_(scores.logsumexp(-1))


def _gradients(
    weighing: Weighing, grad: Any, query: Any, key: Any, value: Any
) -> tuple[Any, ...]:
    """Gradients of query, key, value and bias, through the softmax."""
    heads = key.size(-3)
    query, key, value = _wide_inputs(query, key, value)
    grad = grad.to(query.dtype)
    weights = _softmax(weighing.scores(query, key))
    kept = weighing.kept(weights)
    of_weights = (grad @ value.transpose(-2, -1)) * kept
    # The softmax's own derivative: each score lowers the weights of its row.
    shared = (of_weights * weights).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - shared)
    factor = weighing.factor(query)
    return (
        of_scores @ key * factor,
        _by_group(of_scores.transpose(-2, -1) @ query * factor, heads),
        _by_group((weights * kept).transpose(-2, -1) @ grad, heads),
        of_scores,
    )


def _softmax(scores: Any) -> Any:
    """Zero where a query sees nothing, as the fused kernels have it."""
    # A row of nothing but -inf gives NaN.
    return scores.softmax(-1).nan_to_num(0.0)


def _wide_inputs(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """In float32 at least, keys and values once for each head of the queries."""
    times = query.size(-3) // key.size(-3)
    wide = [in_float32(tensor) for tensor in (query, key, value)]
    if times > 1:
        wide[1:] = [t.repeat_interleave(times, -3) for t in wide[1:]]
    return wide[0], wide[1], wide[2]


def _by_group(grad: Any, heads: int) -> Any:
    """Sum over the heads of the queries that share a key."""
    if grad.size(-3) == heads:
        return grad
    return grad.unflatten(-3, (heads, -1)).sum(-3)


def _fill(made: Sequence[Any], computed: Sequence[Any]) -> None:
    # ``bias`` may be absent among the outputs, and an output that needs no gradient is
    # ``None`` or empty.
    for target, values in zip(made, computed, strict=False):
        if target is not None and target.numel():
            target.copy_(values.sum_to_size(target.shape))


def composed(*_: Any, **__: Any) -> int:
    """What ``aten::_fused_sdp_choice`` gives if no fused kernel was chosen before."""
    return 0


FUSED_ATTENTION: Final[Mapping[str, Callable[..., Any]]] = {
    "_cudnn_attention_forward": cudnn_attention_of_lengths,
    "_fused_sdp_choice": composed,
    "_scaled_dot_product_cudnn_attention": cudnn_attention,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_attention_backward,
    "_scaled_dot_product_flash_attention": flash_attention,
    "_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "_scaled_dot_product_efficient_attention": efficient_attention,
    "_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""


# RMSNorm as CUDA's fused kernel does it, which keeps one number a row.


def rms_norm(
    tensor: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None
) -> tuple[Any, Any]:
    """What ``aten::_fused_rms_norm`` gives: the result and the rows' factors."""
    dims = list(range(-len(normalized_shape), 0))
    wide = in_float32(tensor)
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
    dims = list(range(-len(normalized_shape), 0))
    normed, wide = in_float32(tensor) * factor, in_float32(grad)
    weighted = wide * weight if weight is not None else wide
    projected = (weighted * normed).mean(dims, keepdim=True)
    of_tensor = (factor * (weighted - normed * projected)).to(tensor.dtype)
    of_weight = None
    if weight is not None and output_mask[1]:
        of_weight = (wide * normed).sum_to_size(weight.shape).to(weight.dtype)
    return of_tensor if output_mask[0] else None, of_weight


FUSED_RMS_NORM: Final[Mapping[str, Callable[..., Any]]] = {
    "_fused_rms_norm": rms_norm,
    "_fused_rms_norm_backward": rms_norm_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""


def fused_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Kernels that keep torch's core from composing what CUDA fuses.

    Tensors of the simulated GPU never reach them: their own dispatch comes first.
    """
    if hasattr(torch.ops.aten, "_fused_rms_norm"):
        yield "_fused_rms_norm", rms_norm
    for name in FUSED_BACKWARDS:
        yield name, getattr(_aten, name).default


FUSED_BACKWARDS: Final = ("mish_backward", "silu_backward")
"""Operations with a kernel on the CPU and on CUDA, which torch composes elsewhere."""

ONE_KERNEL: Final = frozenset({*FUSED_BACKWARDS, *FUSED_RMS_NORM})
"""What torch's core may compose, but not for CUDA."""


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

_composite = _aten.scaled_dot_product_attention.default


class Cudnn:
    """Whether an attention runs by cuDNN's kernel, which saves what the flash kernel does."""

    is_chosen = False


CUDNN: Final = Cudnn()


def backend(
    query: Any, key: Any, value: Any, mask: Any, *, enable_gqa: bool
) -> Backend:
    """Choose as sdp_utils.cpp of torch 2.13 does, cuDNN's kernel left aside."""
    if _can_be_flash(query, key, value, mask):
        return Backend.FLASH
    if _can_be_efficient(query, key, value, enable_gqa=enable_gqa):
        return Backend.EFFICIENT
    return Backend.MATH


def _has_heads(*tensors: Any) -> bool:
    return all(t.dim() == 4 for t in tensors)  # noqa: PLR2004, batch, head, token, feature


def _can_be_flash(query: Any, key: Any, value: Any, mask: Any) -> bool:
    width = query.size(-1)
    return (
        torch._C._get_flash_sdp_enabled()  # noqa: SLF001, where torch.nn.attention keeps it
        and _has_heads(query, key, value)
        and mask is None
        and query.dtype in HALVES
        and bool(width == key.size(-1) == value.size(-1) <= FLASH_HEAD)
    )


def _can_be_efficient(query: Any, key: Any, value: Any, *, enable_gqa: bool) -> bool:
    alignment = EFFICIENT_ALIGNMENT.get(query.dtype)
    return (
        torch._C._get_mem_efficient_sdp_enabled()  # noqa: SLF001
        and _has_heads(query, key, value)
        and alignment is not None
        and not enable_gqa
        and not (query.size(-1) % alignment or value.size(-1) % alignment)
    )


def attention_patches() -> Iterator[Patch]:
    """What torch asks of a kernel before it calls it without the common operation."""

    def flash(asked: Any, debug: bool = False) -> bool:  # noqa: FBT001, FBT002, ARG001, torch's
        return _can_be_flash(asked.query, asked.key, asked.value, asked.attn_mask)

    def efficient(asked: Any, debug: bool = False) -> bool:  # noqa: FBT001, FBT002, ARG001
        # Of other tensors torch then makes a mask, and takes about as much.
        return bool(asked.query.is_nested) and _can_be_efficient(
            asked.query, asked.key, asked.value, enable_gqa=asked.enable_gqa
        )

    yield Patch(torch.backends.cuda, "can_use_flash_attention", flash)
    yield Patch(torch.backends.cuda, "can_use_efficient_attention", efficient)


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
    """Kernel of ``aten::scaled_dot_product_attention`` on the simulated GPU.

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
    # No fused kernel fits: torch composes the operation of others, each of which is
    # judged by itself.
    composed = {"scale": scale, "enable_gqa": enable_gqa}
    return _composite.decompose(*tensors, attn_mask, dropout_p, is_causal, **composed)


def _by_flash(
    tensors: tuple[Any, Any, Any], options: tuple[float, bool], scale: float | None
) -> Any:
    width = tensors[0].size(-1)
    scale = scale if scale is not None else 1 / math.sqrt(width)
    padded = [_padded(tensor) for tensor in tensors]
    # The scale is that of the width before padding, and the padding is cut off again,
    # as in torch's attention.cpp.
    CUDNN.is_chosen = not options[0] and width % FLASH_ALIGNMENT == 0
    try:
        output = _flash(*padded, *options, False, scale=scale)[0]  # noqa: FBT003, return_debug_mask
    finally:
        CUDNN.is_chosen = False
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


# Memory that the fused kernels take for themselves.

HALF_BLOCK: Final = 64
BLOCK: Final = 128
LOCK_BYTES: Final = 16


def _align(number: int, to: int) -> int:
    return -(-number // to) * to


def _accumulator(query: Any, key: Any, value: Any) -> int:
    """Bytes of ``_efficient_attention_backward`` for parts of gradients.

    ``workspace_size`` of kernel_backward.h, with the tiles that are compiled for
    capability 8.0 and later.
    """
    batch, heads, tokens, width = query.shape
    is_half = query.dtype in HALVES
    widest = max(width, value.size(-1))
    tall = HALF_BLOCK if widest <= HALF_BLOCK else BLOCK
    broad = BLOCK if is_half and widest > HALF_BLOCK else HALF_BLOCK
    tiles = -(-tokens // tall) * -(-width // broad)
    found = tiles * (tall * broad * 4 + LOCK_BYTES)
    if is_half and widest > BLOCK:
        # The gradients of keys and values do not fit into registers.
        keys = _align(key.size(2), BLOCK)
        found += keys * (_align(width, BLOCK) + _align(value.size(-1), BLOCK)) * 4
    return int(batch * heads * found)


def _by_cudnn(call: OpCall, grad: Any) -> Temporaries:
    """What cuDNN's front end plans for: gradients of the queries in float32, and sums.

    The gradient is copied unless it lies as the output does.
    """
    batch, heads, tokens, width = call["query"].shape
    before = [] if grad.stride() == call["out"].stride() else [nbytes_of(call["out"])]
    return Temporaries(before, [[batch * heads * tokens * (width + 1) * 4]])


def _efficient_backward_memory(call: OpCall) -> Temporaries:
    query, key, value = call["query"], call["key"], call["value"]
    grad = call["grad_out_"]
    if query.dtype in HALVES and not call["dropout_p"]:
        return _by_cudnn(call, grad)
    delta = query.size(0) * query.size(1) * query.size(2) * 4
    workspace = _accumulator(query, key, value)
    # The kernel wants it in the order of batch, token, head and feature.
    before = [] if grad.transpose(1, 2).is_contiguous() else [nbytes_of(grad)]
    phases = [[delta, workspace]]
    if query.dtype not in HALVES:
        # Products of gradient and output, and their sums before they are turned.
        phases.insert(0, [nbytes_of(call["out"]), delta])
    return Temporaries(before=before, phases=phases)


def _flash_memory(call: OpCall) -> Temporaries:
    """With dropout, the state of the random numbers is copied (flash_api.cpp)."""
    return Temporaries(phases=[[16]] if call["dropout_p"] else ())


def _flash_backward_memory(call: OpCall) -> Temporaries:
    query, key, grad = call["query"], call["key"], call["grad_out"]
    if not call["philox_seed"].dim():
        return _by_cudnn(call, grad)
    batch, heads, tokens, width = query.shape
    rows = batch * heads * _align(tokens, BLOCK)
    broad = _align(width, 32 if width <= BLOCK else 64)
    # Gradients of shared keys and values are made for each head of the queries.
    times = heads // key.size(1)
    shared = [] if times == 1 else [nbytes_of(key) * times] * 2
    before = copies_of(grad.transpose(1, 2), call["out"].transpose(1, 2))
    return Temporaries(before, [[rows * 4, rows * broad * 4, *shared]])


def _safe_softmax(call: OpCall) -> Temporaries:
    """Which scores are hidden, and which rows see nothing (attention.cpp)."""
    tensor = call["self"]
    rows = tensor.numel() // max(tensor.size(call["dim"]), 1)
    return Temporaries(phases=[[tensor.numel(), rows, 4]])


ATTENTION_MEMORY: Final[Mapping[str, Rule]] = {
    "_safe_softmax": _safe_softmax,
    "_scaled_dot_product_cudnn_attention_backward": lambda call: _by_cudnn(
        call, call["grad_out"]
    ),
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward_memory,
    "_scaled_dot_product_flash_attention": _flash_memory,
    "_scaled_dot_product_flash_attention_backward": _flash_backward_memory,
}
"""Which of these operations takes what."""
