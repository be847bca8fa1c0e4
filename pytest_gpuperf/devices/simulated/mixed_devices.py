"""Host and device tensors in one operation: refused with CUDA's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from .device_names import type_name
from .sync_rules import INDEXING, release_of


MIXING: Final = frozenset(
    "_ctc_loss _pack_padded_sequence _pad_packed_sequence _to_copy "
    "_use_cudnn_ctc_loss copy copy_ ctc_loss resize_as_ is_same_size set_ "
    "tensor_split".split()
).union(INDEXING)
"""Operations that take tensors of both kinds."""

NAMES_ARGUMENT: Final = (2, 9)
"""The release from which on the message names the argument that is elsewhere."""

MATRIX_OPS: Final = frozenset(
    "addbmm addmm addmv addr baddbmm bmm dot embedding gather index_add "
    "index_select mm mv native_layer_norm nll_loss_forward scatter "
    "scatter_add".split()
)
"""Operations with a CUDA kernel that checks the devices itself, and says so."""


NO_NUMBERS: Final = frozenset(
    "bucketize cat clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ dot "
    "embedding gather index_add index_add_ index_select isin linalg_cross "
    "logaddexp logaddexp2 masked_select nextafter normal searchsorted stack "
    "take".split()
)
"""Operations that take no host tensor for a number: the wrapper of their CUDA kernel
compares devices (``device_check`` in native_functions.yaml, and no TensorIterator), as
was seen of each in torch 2.13 over stub CUDA."""


CHECKED_IN: Final = {
    "dot": "_dot",
    "index_select": "_index_select",
    "masked_select": "_masked_select",
    "stack": "cat",
    "take": "_take",
}
"""Names in torch's message that are not those of the operation."""


def mixes_by_design(name: str) -> bool:
    """Whether the operation takes tensors of both kinds."""
    return name in MIXING


def check_devices(
    name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise ``RuntimeError`` if a tensor on the host is one too many.

    One without dimensions passes for a number where it does on CUDA.
    """
    __tracebackhide__ = True
    if name == "convolution":
        _check_convolution(*args[:3])
    for argument, value in _arguments(func, args, kwargs):
        if _is_on_host(value) and (value.dim() > 0 or name in NO_NUMBERS):
            raise RuntimeError(_message(func, name, argument))


def _check_convolution(batch: Any, weight: Any, bias: Any) -> None:
    """Convolutions compare types, and add a way out where the batch is on the host."""
    __tracebackhide__ = True
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is None or _is_on_host(batch) is _is_on_host(parameter):
            continue
        msg = (
            f"Input type ({_type_of(batch)}) and {name} type ({_type_of(parameter)}) "
            "should be the same"
        )
        if _is_on_host(batch):
            msg += f" or input should be a MKLDNN tensor and {name} is a dense tensor"
        raise RuntimeError(msg)


def check_lengths(lengths: Any) -> None:
    """Refuse lengths of sequences that are on the device, with torch's words."""
    if not _is_on_host(lengths):
        msg = (
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {lengths.device} {_named(lengths.dtype)} tensor"
        )
        raise RuntimeError(msg)


def _named(dtype: torch.dtype) -> str:
    return type_name(dtype, "cpu").removeprefix("torch.").removesuffix("Tensor")


def _type_of(tensor: Any) -> str:
    return type_name(tensor.dtype, tensor.device.type)


def _arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    schema = func._schema  # noqa: SLF001, torch shows it nowhere else
    names = [argument.name for argument in schema.arguments]
    # Trailing arguments may be left out.
    given = [*zip(names, args, strict=False), *kwargs.items()]
    return [
        (name, item)
        for name, value in given
        for item in (value if isinstance(value, (list, tuple)) else (value,))
    ]


def _is_on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _message(func: Any, name: str, argument: str) -> str:
    if name not in MATRIX_OPS and name not in NO_NUMBERS:
        return (
            "Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!"
        )
    overload = func._schema.overload_name  # noqa: SLF001, torch shows it nowhere else
    method = "_".join(
        part for part in ("wrapper_CUDA", CHECKED_IN.get(name, name), overload) if part
    )
    # Users and tests match these words, so they are those of the installed release.
    if release_of(torch.__version__) < NAMES_ARGUMENT:
        return (
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, cuda:0 and cpu! (when checking argument for argument {argument} "
            f"in method {method})"
        )
    return (
        f"Expected all tensors to be on the same device, but got {argument} is on cpu, "
        f"different from other tensors on cuda:0 (when checking argument in method "
        f"{method})"
    )
