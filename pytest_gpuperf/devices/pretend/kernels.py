"""Substitutes for operations that the CPU has no kernel for, or none for their
dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch


def svd(
    matrices: Any,
    full_matrices: bool = False,  # noqa: FBT001, FBT002, as torch has it
    compute_uv: bool = True,  # noqa: FBT001, FBT002
    *,
    driver: str | None = None,
) -> Any:
    """``_linalg_svd``, for which only CUDA lets its caller choose cuSOLVER's function."""
    del driver
    return torch.ops.aten._linalg_svd(matrices, full_matrices, compute_uv)  # noqa: SLF001


HOST_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {"_linalg_svd": svd}
"""What runs on the host in place of an operation's own kernel, which refuses arguments."""

HALVES: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
INTEGERS: Final = dict.fromkeys(
    (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64
)
"""What to compute in instead, by dtype."""

COUNTING_OPS: Final = frozenset({"aten::histc"})
"""Operations that CUDA has for integers and the CPU has not."""

NO_FAKE: Final = "no fake impl registered"
"""What ``torch.library`` says of a custom operation without a meta kernel."""

NO_OUTPUT: Final = object()
"""There is no substitute."""


def in_another_dtype(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Result of *func* computed in a dtype that the CPU has a kernel for.

    Halves are computed in float32 and rounded. Integers are computed in float64: some
    CUDA kernels count integers and the CPU's do not.
    """
    schema = func._schema  # noqa: SLF001, torch shows it nowhere else
    wider = INTEGERS if schema.name in COUNTING_OPS else HALVES
    dtypes = [t.dtype for t in _tensors((*args, *kwargs.values())) if t.dtype in wider]
    # The wider tensors are copies, so an operation that writes to its arguments would
    # write to the wrong ones.
    if not dtypes or schema.is_mutable:
        return NO_OUTPUT
    asked, used = dtypes[0], wider[dtypes[0]]

    def widened(tensor: Any) -> Any:
        return tensor.to(used) if tensor.dtype in wider else tensor

    def rounded(value: Any) -> Any:
        return value.to(asked) if value.dtype is used else value

    try:
        result = func(*mapped(widened, args), **_mapped_dict(widened, kwargs))
    except NotImplementedError:
        return NO_OUTPUT
    return mapped(rounded, [result])[0]


def zeros(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Zeros of the shapes that the meta kernel of *func* gives.

    Raises ``NotImplementedError`` if there is no such kernel.
    """
    meta_kwargs = _mapped_dict(_to_meta, kwargs)
    if "device" in meta_kwargs:
        meta_kwargs["device"] = torch.device("meta")
    try:
        shapes = func(*mapped(_to_meta, args), **meta_kwargs)
    except RuntimeError as error:
        # torch has no class of its own for this error, only its words.
        if NO_FAKE not in str(error):
            raise
        raise NotImplementedError from error
    return mapped(_zeros_like, [shapes])[0]


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


def mapped(change: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Return *values* with *change* applied to the tensors, those of lists as well."""
    return [_changed(change, value) for value in values]


def _mapped_dict(
    change: Callable[[Any], Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: _changed(change, value) for name, value in values.items()}


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, value))
    return value
