"""The casts of ``torch.autocast("cuda")``, for GPU tensors.

torch's own kernels for it ask for a CUDA tensor; these take their place while
simulating and follow the lists of the installed torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from ...errors import ErrorId
from .device_names import AUTOCAST_KEY
from .errors import NeedsGpuError
from .op_plan import kernel_of
from .patches import Patch
from .recurrent_steps import copied
from .tensor import is_gpu_tensor


HEADER: Final = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
"""torch's own lists: which operation is cast how differs between its releases."""

NORMS_WITH_DTYPE: Final = (
    ("norm.Scalar", "norm.ScalarOpt_dtype", (2,)),
    ("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", (2, (), False)),
)
"""Each with the overload that runs in float32, and what may be left out."""

CONVOLUTIONS_BY_NAME: Final = ("cudnn_convolution", "cudnn_convolution_transpose")
"""Cast as those of the list, which only the kernels of CUDA name (autocast_mode.cpp)."""

Kernel = Callable[..., Any]

_casts: dict[tuple[int, Any], tuple[Any, Any]] = {}
"""Copies of parameters in the autocast's dtype, made once per context as in torch.

The parameter is kept with its copy: its ``id`` is the key, and must not be reused.
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
    if not HEADER.exists():
        yield from ((name, _unlisted) for name in _registered())
        return
    for kind, cast in CASTS.items():
        for name in _listed(kind):
            yield name, _casting(_overload(name), cast)
    for name, with_dtype, defaults in NORMS_WITH_DTYPE:
        cast = functools.partial(_appending_float32, defaults)
        yield name, _casting(_overload(with_dtype), cast)
    for name in CONVOLUTIONS_BY_NAME:
        yield name, _casting(_overload(name), _to_autocast_dtype)
    yield "_cudnn_rnn", _casting(torch.ops.aten._cudnn_rnn.default, _to_half)  # noqa: SLF001


def _registered() -> list[str]:
    """Return what torch casts on CUDA, without how."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")  # noqa: SLF001
    return [name.removeprefix("aten::") for name in names]


def _unlisted(*_: Any, **__: Any) -> Any:
    msg = f"only a GPU can judge torch.autocast where torch has no {HEADER}"
    raise NeedsGpuError(msg, ErrorId.GP308)


def _listed(kind: str) -> Iterator[str]:
    """Yield the operations of the list *kind* of torch's header."""
    macro = rf"#define AT_FORALL_{kind}\(_\)((?:.*\\\n)*.*)"
    [operations] = re.findall(macro, HEADER.read_text("utf-8"))
    for name in re.findall(r"_\(([\w, ]+)\)", operations):
        yield name.replace(", ", ".")


def _overload(name: str) -> Any:
    base, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), variant or "default")


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


def _appending_float32(
    defaults: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Give the dtype to an operation that has an overload with one."""
    dtype = torch.float32 if _is_castable(args[0]) else args[0].dtype
    # Arguments that are left out have no default where a dtype is given.
    given = (*args, *defaults[len(args) - 1 :])
    return given, {**kwargs, "dtype": dtype}


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
        is_gpu_tensor(value)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


CASTS: Final = {
    "LOWER_PRECISION_FP": _to_autocast_dtype,
    "FP32": _to_float32,
    "FP32_SET_OPT_DTYPE": _to_float32_unless_dtype_given,
    "PROMOTE": _to_widest,
}
"""How the arguments are cast of the operations in each list."""
