"""The simulated GPU as Python knows it and as torch's core does, and its tensor types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch

from .patches import Patch


DEVICE: Final = torch.device
"""torch's own class, also while ``torch.device`` is replaced."""

LAZY: Final = torch.device("lazy")
"""A GPU tensor's device in torch's core.

Every wheel has a device guard for this type, and its backward runs on the calling
thread, so the lines of a backward are seen.
"""

CUDA: Final = torch.device("cuda", 0)

CPU: Final = torch.device("cpu")

AUTOCAST_KEY: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)  # noqa: SLF001
"""Makes ``torch.autocast("cuda")`` apply to GPU tensors, see ``autocast``."""


# Devices as users name them: whether one is simulated, and what torch's core sees of
# it.

DEVICE_TYPES: Final = frozenset({CUDA.type, LAZY.type})
"""What the simulated GPU is called outside of torch's core and in it."""


def is_cuda(device: Any) -> bool:
    """Whether *device* (a string, an index, a ``torch.device``) is the simulated GPU.

    Raises torch's own error for a CUDA device beyond the first.
    """
    # A bool is an int to Python, and ``.to(True)`` names no device.
    if isinstance(device, bool) or device is None:
        return False
    if isinstance(device, int):
        _check_index(device)
        return True
    if isinstance(device, str):
        device = torch.device(device) if device.startswith("cuda") else None
    if not isinstance(device, DEVICE) or device.type not in DEVICE_TYPES:
        return False
    _check_index(device.index)
    return True


def index_of(device: Any = None) -> int:
    """Index of *device* among the CUDA devices, of which there is one.

    Raises ``ValueError`` for another kind of device, as torch does.
    """
    if device is None or isinstance(device, int):
        index = device or 0
    else:
        found = torch.device(device)
        if found.type != CUDA.type:
            msg = f"Expected a cuda device, but got: {found}"
            raise ValueError(msg)
        index = found.index or 0
    _check_index(index)
    return index


def is_host(device: Any) -> bool:
    """Whether *device*, as torch's core names it, is one and is not the simulated GPU."""
    return device is not None and device.type not in DEVICE_TYPES


def in_core(value: Any) -> Any:
    """Return *value*, with the simulated GPU as torch's core knows it."""
    if isinstance(value, (str, DEVICE)) and is_cuda(value):
        return LAZY
    return value


def _check_index(index: int | None) -> None:
    if index is None or index in {0, -1}:
        return
    # The class that CUDA errors have from torch 2.8 on; it is a RuntimeError.
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    msg = "CUDA error: invalid device ordinal"
    raise kind(msg)


# The class: torch's core would ask the GPU that is not there for ``torch.device(0)``.


class DeviceType(type):
    """The class of ``torch.device``; it makes and knows torch's own devices.

    It equals torch's own class, by which tables of types find it.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Make a device: an index alone is that of a CUDA device."""
        given = (*args, *options.values())
        if len(given) == 1 and type(given[0]) is int and "type" not in options:
            return DEVICE(CUDA.type, given[0])
        return DEVICE(*args, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether *instance* is a device."""
        return isinstance(instance, DEVICE)

    def __subclasscheck__(cls, subclass: type) -> bool:
        """Whether *subclass* is the class of devices."""
        return subclass is cls or issubclass(subclass, DEVICE)

    def __getattr__(cls, name: str) -> Any:
        """Return what torch's own class has."""
        return getattr(DEVICE, name)

    def __eq__(cls, other: object) -> bool:
        """Whether *other* is the class of devices, torch's own or this."""
        return other is DEVICE or type(other) is DeviceType

    def __hash__(cls) -> int:
        """Hash as torch's own class."""
        return hash(DEVICE)


def device_patches() -> Iterator[Patch]:
    """``torch.device``, which pickles find by this name as well."""
    body = {"__module__": "torch", "__doc__": DEVICE.__doc__}
    yield Patch(torch, "device", DeviceType("device", (), body))


# Tensor types by their old names: ``torch.cuda.FloatTensor`` and its kin.

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
