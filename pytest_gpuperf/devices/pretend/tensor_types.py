"""Tensor types by their old names: ``torch.cuda.FloatTensor`` and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from typing import Final

import torch


DTYPES: Final = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
TYPE_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def type_name(dtype: Any, device_type: str) -> str:
    """Name of the tensor type, such as ``torch.cuda.FloatTensor``."""
    module = "torch" if device_type == "cpu" else f"torch.{device_type}"
    return f"{module}.{TYPE_NAMES.get(dtype, 'Tensor')}"


class CudaTensorType(type):
    """A class of which every tensor of its dtype on the device is an instance."""

    dtype: Any

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether *instance* is on the device and of this dtype."""
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "cuda"
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *values: Any) -> Any:
        """Make a tensor on the device, of sizes or of values."""
        if all(isinstance(value, int) for value in values):
            return torch.empty(values or (0,), dtype=cls.dtype, device="cuda")
        return torch.tensor(*values, dtype=cls.dtype, device="cuda")


def cuda_tensor_types() -> Iterator[tuple[str, CudaTensorType]]:
    """Every type by its name in ``torch.cuda``."""
    for name, dtype in DTYPES.items():
        body = {"dtype": dtype, "__module__": "torch.cuda"}
        yield name, CudaTensorType(name, (), body)


def target_of(kind: Any) -> tuple[str | None, Any]:
    """Device and dtype that ``Tensor.type(kind)`` asks for; no device keeps it."""
    if isinstance(kind, torch.dtype):
        return None, kind
    if isinstance(kind, CudaTensorType):
        return "cuda", kind.dtype
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    module, _, short = name.rpartition(".")
    if short not in DTYPES or module not in {"torch", "torch.cuda"}:
        msg = f"invalid type: '{name}'"
        raise ValueError(msg)
    return ("cuda" if module == "torch.cuda" else "cpu"), DTYPES[short]
