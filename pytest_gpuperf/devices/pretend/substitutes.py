"""What to run where the CPU has no kernel for an operation or not for its dtype."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch


HALVES: Final = (torch.float16, torch.bfloat16)

NO_FAKE: Final = "no fake impl registered"
"""What ``torch.library`` says of a custom operation without a meta kernel."""

NONE: Final = object()
"""There is no substitute."""


def in_float32(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Result of *func* computed in float32 and rounded to the dtype it was asked in."""
    dtypes = [t.dtype for t in _tensors((*args, *kwargs.values())) if t.dtype in HALVES]
    if not dtypes or func._schema.is_mutable:  # noqa: SLF001, torch shows it nowhere else
        return NONE
    try:
        result = func(*_mapped(_to_float32, args), **_mapped_dict(_to_float32, kwargs))
    except NotImplementedError:
        return NONE
    half = dtypes[0]

    def rounded(value: Any) -> Any:
        return value.to(half) if value.dtype is torch.float32 else value

    return _mapped(rounded, [result])[0]


def zeros(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Zeros of the shapes that the meta kernel of *func* gives.

    Raises ``NotImplementedError`` where there is no such kernel.
    """
    meta_kwargs = _mapped_dict(_to_meta, kwargs)
    if "device" in meta_kwargs:
        meta_kwargs["device"] = torch.device("meta")
    try:
        shapes = func(*_mapped(_to_meta, args), **meta_kwargs)
    except RuntimeError as error:
        if NO_FAKE not in str(error):
            raise
        raise NotImplementedError from error
    return _mapped(_zeros_like, [shapes])[0]


def _to_float32(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _to_meta(tensor: Any) -> Any:
    return tensor.to("meta")


def _zeros_like(tensor: Any) -> Any:
    if not tensor.is_meta:
        return tensor
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype
    ).zero_()


def _tensors(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def _mapped(change: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return [_changed(change, value) for value in values]


def _mapped_dict(
    change: Callable[[Any], Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: _changed(change, value) for name, value in values.items()}


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, value))
    return value
