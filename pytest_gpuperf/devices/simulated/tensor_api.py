"""Methods of host tensors and modules that lead to the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from ..audit_record import CopyDirection
from .device_names import CUDA, LAZY, in_core, is_cuda, target_of
from .guesses import Guess, concluded
from .modules import is_uninitialized, mark
from .patches import Patch
from .tensor import OWN_ATTRIBUTES, GpuTensor, is_gpu_tensor, parameter_patches
from .tensor_values import GpuStorage, copy_storage, new_storage
from .transfers import MOVED, PINNED_MEMORY


# Functions of ``math`` that read a float without its methods, so guesses must be
# reported.

UNPATCHED_NAMES: Final = tuple(
    "exp expm1 fabs isclose isfinite isinf isnan log log10 log1p log2 pow sqrt".split()
)
"""Functions of ``math`` that training loops call with a loss."""


def mathematics_patches() -> Iterator[Patch]:
    """Replace the functions that would read a guess as a plain float."""
    for name in UNPATCHED_NAMES:
        yield Patch(math, name, _following_guesses(getattr(math, name)))


def _following_guesses(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def computed(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return concluded(result) if Guess in map(type, args) else result

    return computed


# Loading onto the device; saving needs nothing, as a GPU tensor pickles like a CUDA tensor.

_restore = torch.serialization.default_restore_location


def loading_patches() -> Iterator[Patch]:
    """Where ``torch.load`` puts a storage."""
    yield Patch(torch.serialization, "default_restore_location", restore_location)


def restore_location(storage: Any, location: str) -> Any:
    """Restore *storage* where *location* says, on the device by a blocking copy."""
    __tracebackhide__ = True
    if not is_cuda(str(location)):
        return _restore(storage, location)
    made = GpuStorage(storage, CUDA)
    made.move("torch.load", CopyDirection.H2D)
    return made


UNBOUND: Final = ("__format__", "numpy", "tolist")
"""Methods that GPU tensors have of their own and users call as ``Tensor.tolist(x)`` too."""

KEEPING: Final = (None, torch.preserve_format)
"""Memory formats that leave the strides of a dense tensor as they are."""

_to = torch.Tensor.to
_type = torch.Tensor.type
_data = torch._C.TensorBase.data  # noqa: SLF001
_get_device: Final = torch._C.TensorBase.device.__get__  # noqa: SLF001
_get_is_cuda: Final = torch._C.TensorBase.is_cuda.__get__  # noqa: SLF001
_get_data: Final = _data.__get__
_set_data: Final = _data.__set__


def method_patches() -> Iterator[Patch]:
    """Moves, pinning, and the type and device that a tensor names."""
    tensor = torch.Tensor
    yield Patch(tensor, "to", to)
    yield Patch(tensor, "cuda", cuda)
    yield Patch(tensor, "type", type_)
    yield Patch(tensor, "pin_memory", pin_memory)
    yield Patch(tensor, "is_pinned", is_pinned)
    yield Patch(tensor, "data", property(_get_data, set_data))
    yield Patch(tensor, "device", property(device))
    yield Patch(tensor, "is_cuda", property(_is_on_cuda))
    for name in UNBOUND:
        yield Patch(tensor, name, _with_own(name))
    # ``swap_tensors`` refuses what a graph keeps, of which on CUDA the data is set.
    yield Patch(tensor, "_use_count", lambda _: 1)
    make = tensor._make_wrapper_subclass  # noqa: SLF001
    yield Patch(tensor, "_make_wrapper_subclass", staticmethod(_in_core(make)))
    yield Patch(tensor, "__new__", _of_subclass(tensor.__new__))
    made = _made_subclass(tensor._make_subclass)  # noqa: SLF001
    yield Patch(tensor, "_make_subclass", staticmethod(made))
    yield from parameter_patches()
    yield Patch(torch.nn.Module, "to", _to_named_gpu(torch.nn.Module.to))
    yield Patch(torch.nn.Module, "_apply", _keeping_attributes(torch.nn.Module._apply))  # noqa: SLF001
    yield Patch(torch.UntypedStorage, "cuda", storage_to_cuda)
    yield Patch(torch.UntypedStorage, "copy_", copy_storage)
    yield Patch(torch.UntypedStorage, "__new__", new_storage)
    yield Patch(torch.storage.TypedStorage, "_new_wrapped_storage", _typed)
    yield Patch(torch._C, "_group_tensors_by_device_and_dtype", group_tensors)  # noqa: SLF001


def _of_subclass(new: Callable[..., Any]) -> Callable[..., Any]:
    """``Tensor.__new__`` of another tensor, which torch's core refuses of one in Python."""

    def made(cls: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and not options:
            return args[0].detach().as_subclass(cls)
        return new(cls, *args, **options)

    return made


def _made_subclass(make: Callable[..., Any]) -> Callable[..., Any]:
    """``Tensor._make_subclass``, which torch's core refuses of a tensor in Python."""

    def made(cls: Any, data: Any, require_grad: bool = False, **options: Any) -> Any:  # noqa: FBT001, FBT002, torch's
        if is_gpu_tensor(data):
            return data.detach().as_subclass(cls).requires_grad_(require_grad)
        return make(cls, data, require_grad, **options)

    return made


def _in_core(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *make*: a tensor around simulated ones is on the device that torch's core has for them."""

    def made(*args: Any, **options: Any) -> Any:
        options = {name: in_core(value) for name, value in options.items()}
        return make(*map(in_core, args), **options)

    return made


def device(tensor: Any) -> Any:
    """``Tensor.device``, also of a tensor that is made of GPU tensors, such as a DTensor."""
    found = _get_device(tensor)
    return CUDA if found.type == LAZY.type else found


def _is_on_cuda(tensor: Any) -> bool:
    return bool(_get_is_cuda(tensor)) or _get_device(tensor).type == LAZY.type


def _move(tensor: Any, *args: Any, **options: Any) -> Any:
    """``Tensor.to`` as torch has it; a host tensor is remembered meanwhile.

    Not one with parts, which are moved one by one.
    """
    __tracebackhide__ = True
    if is_gpu_tensor(tensor) or tensor.layout is torch.jagged:
        return _to(tensor, *args, **options)
    if is_uninitialized(tensor) and LAZY in (*args[:1], options.get("device")):
        return mark(tensor)
    # torch's core moves a tensor in two operations, which reach us one by one; see
    # ``Moved``.
    MOVED.source = tensor
    MOVED.keeps_strides = options.get("memory_format") in KEEPING
    try:
        return _to(tensor, *args, **options)
    finally:
        MOVED.source = None


def _with_own(name: str) -> Callable[..., Any]:
    """``Tensor.name``, which asks a GPU tensor for its own."""
    plain, own = getattr(torch.Tensor, name), vars(GpuTensor)[name]

    @functools.wraps(plain)
    def called(tensor: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        method = own if is_gpu_tensor(tensor) else plain
        return method(tensor, *args, **options)

    return called


def to(tensor: Any, *args: Any, **options: Any) -> Any:
    """``Tensor.to`` with the device as torch's core knows it."""
    __tracebackhide__ = True
    if args:
        first = LAZY if type(args[0]) is int and is_cuda(args[0]) else in_core(args[0])
        args = (first, *args[1:])
    if "device" in options:
        device = options["device"]
        options["device"] = LAZY if is_cuda(device) else device
    return _move(tensor, *args, **options)


def cuda(
    tensor: Any,
    device: Any = None,
    non_blocking: bool = False,  # noqa: FBT001, FBT002, torch's
    **options: Any,
) -> Any:
    """``Tensor.cuda``."""
    __tracebackhide__ = True
    if device is not None and not is_cuda(device):
        msg = f"Invalid device, must be cuda device, but got {torch.device(device)}"
        raise RuntimeError(msg)
    return _move(tensor, LAZY, non_blocking=non_blocking, **options)


def type_(tensor: Any, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002, torch's
    """``Tensor.type`` of a host tensor, which may lead to the device."""
    __tracebackhide__ = True
    if dtype is None:
        return _type(tensor)
    device, target = target_of(dtype)
    place = LAZY if device == "cuda" else torch.device(device or "cpu")
    return _move(tensor, place, target, non_blocking=non_blocking)


def pin_memory(tensor: Any, *_: object, **__: object) -> Any:
    """``Tensor.pin_memory``: a copy, of which we remember that it is pinned."""
    return (
        tensor if PINNED_MEMORY.contains(tensor) else PINNED_MEMORY.pin(tensor.clone())
    )


def is_pinned(tensor: Any, *_: object, **__: object) -> bool:
    """``Tensor.is_pinned``."""
    return PINNED_MEMORY.contains(tensor)


def set_data(tensor: Any, value: Any) -> None:
    """``tensor.data = value``, also where that takes a host tensor to the device."""
    __tracebackhide__ = True
    if not is_gpu_tensor(value):
        _set_data(tensor, value)
        return
    gpu_tensor = torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
    torch.utils.swap_tensors(tensor, gpu_tensor)


def _to_named_gpu(move: Callable[..., Any]) -> Callable[..., Any]:
    """``Module.to``, of which a torch without CUDA would refuse the number of a GPU."""

    @functools.wraps(move)
    def moved(module: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if args and type(args[0]) is int:
            args = (torch.device("cuda", args[0]), *args[1:])
        if type(options.get("device")) is int:
            options["device"] = torch.device("cuda", options["device"])
        return move(module, *args, **options)

    return moved


def _keeping_attributes(apply: Callable[..., Any]) -> Callable[..., Any]:
    """``Module._apply`` that leaves users' attributes on parameters it moves.

    On CUDA it sets the parameter's data; a GPU tensor is swapped in, attributes and all.
    """

    @functools.wraps(apply)
    def applied(module: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        kept = [
            (parameter, dict(vars(parameter)))
            for parameter in module._parameters.values()  # noqa: SLF001, those of children are theirs
            if parameter is not None and vars(parameter)
        ]
        before = dict(module._parameters)  # noqa: SLF001
        result = apply(module, *args, **options)
        _keep_identity(module, before)
        for parameter, attributes in kept:
            for name, value in attributes.items():
                if name not in OWN_ATTRIBUTES:
                    vars(parameter).setdefault(name, value)
        return result

    return applied


def _keep_identity(module: Any, before: Mapping[str, Any]) -> None:
    """Let a parameter that went back to the host be the object it was, as on CUDA."""
    for name, old in before.items():
        new = module._parameters[name]  # noqa: SLF001
        if is_gpu_tensor(old) and new is not old:
            torch.utils.swap_tensors(old, new)
            module._parameters[name] = old  # noqa: SLF001


def storage_to_cuda(storage: Any, _: Any = None, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002, torch's
    """``UntypedStorage.cuda``, which map_location functions call: a copy."""
    made = new_storage(torch.UntypedStorage, storage.nbytes(), device=CUDA)
    return copy_storage(made, storage, non_blocking)


_wrap_storage = torch.storage.TypedStorage._new_wrapped_storage  # noqa: SLF001


def _typed(typed: Any, storage: Any) -> Any:
    """``TypedStorage`` around another storage, of which torch asks that it be its own."""
    if type(storage) is not GpuStorage:
        return _wrap_storage(typed, storage)
    return torch.storage.TypedStorage(
        wrap_storage=storage, dtype=typed.dtype, _internal=True
    )


_group = torch._C._group_tensors_by_device_and_dtype  # noqa: SLF001


def group_tensors(*args: Any, **options: Any) -> Any:
    """Group tensors for foreach kernels, by the device that users know."""
    grouped = _group(*args, **options)
    return {
        (CUDA if device.type == "lazy" else device, dtype): group
        for (device, dtype), group in grouped.items()
    }
