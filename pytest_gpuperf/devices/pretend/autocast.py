"""The casts of ``torch.autocast("cuda")``, for ghosts.

torch's own kernels for it ask for a CUDA tensor; these take their place while
pretending and follow the same lists (autocast_mode.h of torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch

from .device_names import AUTOCAST_KEY
from .op_plan import kernel_of
from .patches import Patch
from .recurrent_weights import copied
from .tensor import Ghost


LOWER: Final = [
    "_convolution",
    "_convolution.deprecated",
    "_scaled_dot_product_flash_attention",
    "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell",
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "einsum",
    "gru_cell",
    "linalg_multi_dot",
    "linalg_vecdot",
    "linear",
    "lstm_cell",
    "matmul",
    "mm",
    "mv",
    "prelu",
    "rnn_relu_cell",
    "rnn_tanh_cell",
    "scaled_dot_product_attention",
]
"""Run in the dtype of the autocast."""

FLOAT32: Final = [
    "acos",
    "asin",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "dist",
    "erfinv",
    "exp",
    "expm1",
    "frobenius_norm.dim",
    "group_norm",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "logsumexp",
    "logsumexp.names",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "native_layer_norm",
    "nll_loss",
    "nll_loss2d",
    "nuclear_norm",
    "nuclear_norm.dim",
    "pdist",
    "poisson_nll_loss",
    "pow.Scalar",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "reciprocal",
    "renorm",
    "rsqrt",
    "sinh",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softplus",
    "tan",
    "triplet_margin_loss",
]
"""Run in float32."""

FLOAT32_RESULT: Final = [
    "cumprod",
    "cumsum",
    "linalg_matrix_norm",
    "linalg_vector_norm",
    "log_softmax.int",
    "prod",
    "prod.dim_int",
    "softmax.int",
    "sum",
    "sum.dim_IntList",
]
"""Run in float32 unless another dtype is given."""

PROMOTED: Final = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "grid_sampler",
    "index_put",
    "scatter_add",
    "tensordot",
    "vdot",
]
"""Run in the widest dtype among their arguments."""

Kernel = Callable[..., Any]

_casts: dict[tuple[int, Any], tuple[Any, Any]] = {}
"""Copies of parameters in the autocast's dtype, made once per context as in torch.

The parameter is kept beside its copy: its ``id`` is the key, and must not be reused.
"""

_clear_cache = torch.clear_autocast_cache


def autocast_patches() -> Iterator[Patch]:
    """Forget the copies where torch forgets its own."""
    yield Patch(torch, "clear_autocast_cache", clear_cache)


def clear_cache() -> None:
    """``torch.clear_autocast_cache``, and ours."""
    _casts.clear()
    _clear_cache()


def autocast_kernels() -> Iterator[tuple[str, Kernel]]:
    """Kernels for the autocast key, by operation; those this torch has."""
    for names, cast in (
        (LOWER, _to_autocast_dtype),
        (FLOAT32, _to_float32),
        (FLOAT32_RESULT, _to_float32_unless_dtype_given),
        (PROMOTED, _to_widest),
    ):
        for name in names:
            if (overload := _overload(name)) is not None:
                yield name, _casting(overload, cast)
    yield "_cudnn_rnn", _casting(torch.ops.aten._cudnn_rnn.default, _to_half)  # noqa: SLF001


def _overload(name: str) -> Any:
    base, _, variant = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, variant or "default", None) if packet is not None else None


def _casting(overload: Any, cast: Callable[..., Any]) -> Kernel:
    run = kernel_of(overload)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        # As torch's kernels do: without the guard the call below would come back here.
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEY):  # noqa: SLF001
            args, kwargs = cast(args, kwargs)
            return run(*args, **kwargs)

    return kernel


def _to_autocast_dtype(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return _cast_all(args, kwargs, torch.get_autocast_dtype("cuda"))


def _to_float32(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return _cast_all(args, kwargs, torch.float32)


def _to_float32_unless_dtype_given(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    dtypes = (*args, *kwargs.values())
    if any(isinstance(value, torch.dtype) for value in dtypes):
        return args, kwargs
    if not _is_castable(args[0]):
        return args, kwargs
    # The dtype is passed on and not applied: kernels cast as they go.
    given = args[:-1] if args[-1] is None else args
    return given, {**kwargs, "dtype": torch.float32}


def _to_half(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Cast what cuDNN's recurrent layer is given: its autocast knows float16 alone.

    Weights are copied into one piece of that dtype (AutocastRNN.cpp).
    """
    tensor, weights, per_layer, buffer, *states = args[:6]
    like = weights[0] if buffer is None else buffer
    if _is_castable(like) and like.dtype is not torch.float16:
        buffer, weights = copied(weights, per_layer, torch.float16)
    tensor, *states = _cast_all((tensor, *states), {}, torch.float16)[0]
    return (tensor, weights, per_layer, buffer, *states, *args[6:]), kwargs


def _to_widest(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    floats = [a for a in (*args, *kwargs.values()) if _is_castable(a)]
    wide = any(tensor.dtype is torch.float32 for tensor in floats)
    dtype = torch.float32 if wide else torch.get_autocast_dtype("cuda")
    return _cast_all(args, kwargs, dtype)


def _cast_all(args: Sequence[Any], kwargs: Mapping[str, Any], dtype: Any) -> Any:
    # From the last to the first, as compilers evaluate the arguments of a call in C++.
    by_name = {n: _cast(value, dtype) for n, value in [*kwargs.items()][::-1]}
    cast = [_cast(value, dtype) for value in reversed(args)]
    return cast[::-1], {name: by_name[name] for name in kwargs}


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    if not _is_castable(value) or value.dtype is dtype:
        return value
    # torch caches casts of float32 leaves that need gradients, and no others.
    is_weight = value.is_leaf and value.requires_grad and value.dtype is torch.float32
    if not is_weight or dtype is torch.float32 or not torch.is_autocast_cache_enabled():
        return value.to(dtype)
    key = (id(value), dtype)
    if key not in _casts:
        _casts[key] = (value, value.to(dtype))
    return _casts[key][1]


def _is_castable(value: Any) -> bool:
    return (
        # The kernels replace torch's for every tensor, so host tensors must pass as
        # they are.
        type(value) is Ghost
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )
