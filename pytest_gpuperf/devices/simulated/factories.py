"""Tensors that are made on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.utils import _device

from .device_names import CUDA, LAZY, in_core, is_cuda
from .memory import SIMULATED_MEMORY
from .patches import Patch
from .recorder import WATCH
from .sorting import permutation_bytes
from .tensor import is_gpu_tensor, wrap
from .tensor_values import BACKING
from .transfers import H2D, MOVED, PINNED_MEMORY, record_copy


# ``torch.Generator``, which may be asked for on the device.

_Generator = torch.Generator


class DeviceGenerator(_Generator):  # type: ignore[misc,valid-type]  # torch is untyped here
    """A generator on the host that says it is on the device."""

    device = property(lambda _: CUDA)


class AnyGenerator(type):
    """Metaclass of the replacement: every generator is an instance of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether *instance* is any generator."""
        return isinstance(instance, _Generator)

    def __call__(cls, device: Any = "cpu") -> Any:
        """Make one, on the device if *device* says so."""
        return DeviceGenerator() if is_cuda(device) else _Generator(device)


class Generator(metaclass=AnyGenerator):
    """Replaces ``torch.Generator``."""


def generator_patches() -> Iterator[Patch]:
    """The one class."""
    yield Patch(torch, "Generator", Generator)


FACTORY_NAMES: Final = tuple(
    "arange bartlett_window blackman_window empty empty_permuted "
    "empty_strided eye full hamming_window hann_window kaiser_window linspace "
    "logspace normal ones rand randint randn randperm range scalar_tensor "
    "tril_indices triu_indices zeros".split()
)
"""Functions with a result that a kernel writes on the device."""

FROM_HOST_NAMES: Final = ("tensor", "as_tensor", "asarray")
"""Functions that build on the host and copy."""

LIKE: Final = tuple(
    "empty_like full_like ones_like rand_like randint_like randn_like "
    "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor "
    "sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor zeros_like".split()
)
"""Functions that torch's core places on the device."""

NEW: Final = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
"""Methods that torch's core places on the device."""

FROM_HOST_METHOD: Final = "new_tensor"

_stand_ins: set[Any] = set()
"""Our replacements of torch's factories."""


def creation_patches() -> Iterator[Patch]:
    """Everything that takes ``device=`` and makes a tensor."""
    for name in FACTORY_NAMES:
        yield Patch(torch, name, _launching(name, getattr(torch, name)))
    for name in ("fftfreq", "rfftfreq"):
        yield Patch(torch.fft, name, _launching(name, getattr(torch.fft, name)))
    for name in FROM_HOST_NAMES:
        yield Patch(torch, name, _copying(getattr(torch, name)))
    for name in LIKE:
        yield Patch(torch, name, _placed(getattr(torch, name)))
    for name in NEW:
        yield Patch(torch.Tensor, name, _placed(getattr(torch.Tensor, name)))
    yield Patch(torch.Tensor, FROM_HOST_METHOD, _new_tensor)
    nested = torch.nested
    yield Patch(nested, "nested_tensor", _nested_tensor)
    yield Patch(_device.DeviceContext, "__torch_function__", _under_default_device)


def _launching(name: str, create: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *create*: on the device by one kernel if its ``device`` says so."""
    # Memory that is only allocated is written by no kernel.
    launches = not name.startswith("empty")

    @functools.wraps(create)
    def created(
        *args: Any,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        **options: Any,
    ) -> Any:
        __tracebackhide__ = True
        if is_gpu_tensor(options.get("out")) and is_cuda(device):
            device = None  # torch's core has another name for where that is
        # Pinning needs CUDA, so it is done by hand: the memory is only marked as
        # pinned.
        if pin_memory:
            made = create(*args, requires_grad=requires_grad, **options)
            return PINNED_MEMORY.pin(made)
        if not is_cuda(device):
            if device is not None:
                options["device"] = device
            if requires_grad:
                options["requires_grad"] = requires_grad
            return create(*args, **options)
        BACKING.expect_sizes(args, options.get("dtype"))
        made = create(*args, device=BACKING.device, **options)
        if (live := SIMULATED_MEMORY.live) is not None:
            live.op = f"aten::{name}"
        gpu_tensor = made if is_gpu_tensor(made) else wrap(made)
        if live is not None and name == "randperm":
            live.give_back(live.take(permutation_bytes(made.numel())))
        if launches:
            WATCH.launch(f"aten::{name}")
            WATCH.ran(f"aten::{name}", gpu_tensor)
        return gpu_tensor.requires_grad_() if requires_grad else gpu_tensor

    _stand_ins.add(created)
    return created


def _copying(build: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *build*: on the host, then copied if its ``device`` is the simulated one."""

    @functools.wraps(build)
    def built(*args: Any, device: Any = None, **options: Any) -> Any:
        __tracebackhide__ = True
        args = tuple(map(_read, args))
        device = device if device is not None else _default_device(args)
        if not is_cuda(device):
            if device is not None:
                options["device"] = device
            pinned = options.pop("pin_memory", False)
            made = build(*args, **options)
            return PINNED_MEMORY.pin(made) if pinned else made
        return _to_device(build, args, options)

    return built


def _to_device(
    build: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    requires_grad = options.pop("requires_grad", False)
    if not args or not isinstance(args[0], torch.Tensor):
        # Named explicitly, or a default device of the user would apply here.
        options["device"] = "cpu"
    made = build(*args, **options)
    on_device = made if is_gpu_tensor(made) else made.to(LAZY)
    return on_device.requires_grad_() if requires_grad else on_device


def _read(values: Any) -> Any:
    """Read the GPU tensors in a list one by one, as torch does it for CUDA tensors."""
    if not isinstance(values, (list, tuple)):
        return values
    if not any(
        isinstance(value, (list, tuple)) or is_gpu_tensor(value) for value in values
    ):
        return values
    return [_numbers(v) if is_gpu_tensor(v) else _read(v) for v in values]


def _numbers(gpu_tensor: Any) -> Any:
    """Read one number as torch does, which is no copy of a tensor."""
    return gpu_tensor.tolist() if gpu_tensor.dim() else gpu_tensor.item()


def _default_device(args: tuple[Any, ...]) -> Any:
    """Device that ``torch.set_default_device`` named, for what is not a tensor yet."""
    if args and isinstance(args[0], torch.Tensor):
        return None
    return _device.CURRENT_DEVICE


def _new_tensor(tensor: Any, *args: Any, device: Any = None, **options: Any) -> Any:
    __tracebackhide__ = True
    place = tensor.device if device is None else device
    options.setdefault("dtype", tensor.dtype)
    return torch.tensor(*args, device=place, **options)


def _placed(create: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *create*: its ``device`` becomes the one that torch's core knows."""

    @functools.wraps(create)
    def created(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if "device" in options:
            options["device"] = in_core(options["device"])
        pinned = options.pop("pin_memory", False)
        made = create(*args, **options)
        return PINNED_MEMORY.pin(made) if pinned and not is_gpu_tensor(made) else made

    return created


_make_nested = torch.nested.nested_tensor
_make_jagged = _placed(torch.nested.nested_tensor)


def _nested_tensor(tensors: Any, *, layout: Any = None, **options: Any) -> Any:
    """``torch.nested.nested_tensor``; torch's core has strided ones on few devices."""
    __tracebackhide__ = True
    if layout is not None:
        options["layout"] = layout
    parts = [part.inside if is_gpu_tensor(part) else part for part in tensors]
    first = tensors[0] if parts and is_gpu_tensor(tensors[0]) else None
    device = options.get("device", first.device if first is not None else None)
    if layout is torch.jagged or not is_cuda(device):
        return _make_jagged(tensors, **options)
    requires_grad = options.pop("requires_grad", False)
    made = wrap(_make_nested(parts, **{**options, "device": "cpu"}))
    return made.requires_grad_() if requires_grad else made


def _under_default_device(
    context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Place what is made under a default device; a GPU tensor if that is the GPU."""
    # torch's own method knows only the constructors of torch, which are replaced here.
    del types
    kwargs = kwargs or {}
    makes = func in _device._device_constructors() or func in _stand_ins  # noqa: SLF001
    if makes and kwargs.get("device") is None:
        kwargs["device"] = context.device
        if is_cuda(context.device):
            func = _patched(func)
    return func(*args, **kwargs)


def _patched(func: Any) -> Any:
    return func if func in _stand_ins else getattr(torch, func.__name__, func)


def empty(size: Any, **options: Any) -> Any:
    """Kernel of ``aten::empty.memory_format`` for what torch's core makes itself."""
    BACKING.expect_sizes((size,), options.get("dtype"))
    stride = MOVED.strides(size)
    if stride is not None:
        del options["memory_format"]
        return empty_strided(size, stride, **options)
    _name("aten::empty")
    # ``torch.empty`` itself is patched; this is the function behind it.
    return wrap(torch._C._VariableFunctions.empty(size, **_given(options)))  # noqa: SLF001


def empty_strided(size: Any, stride: Any, **options: Any) -> Any:
    """Kernel of ``aten::empty_strided``."""
    BACKING.expect_sizes((size,), options.get("dtype"))
    _name("aten::empty_strided")
    make = torch._C._VariableFunctions.empty_strided  # noqa: SLF001
    return wrap(make(size, stride, **_given(options)))


def _name(op: str) -> None:
    """Attribute the next memory to *op*, or to the copy that *op* is a part of."""
    if SIMULATED_MEMORY.live is not None:
        SIMULATED_MEMORY.live.op = op if MOVED.source is None else "aten::_to_copy"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    ignored = {"device", "pin_memory"}
    given = {
        name: value
        for name, value in options.items()
        if value is not None and name not in ignored
    }
    return {**given, "device": BACKING.device}


def zeros(size: Any, **options: Any) -> Any:
    """Kernel of ``aten::_efficientzerotensor``, which takes no memory."""
    return wrap(torch._efficientzerotensor(size, **_given(options)))  # noqa: SLF001


def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002, the schema's
    """Kernel of ``aten::_copy_from``, where torch's core copies past all dispatch.

    It does so for a list that indexes a tensor without calling ``GpuTensor.__getitem__``.
    """
    nbytes = source.numel() * source.element_size()
    record_copy("aten::_to_copy", H2D, non_blocking=non_blocking, nbytes=nbytes)
    target.inside.copy_(source)
    return target


FACTORY_KERNELS: Final = (
    ("_copy_from", copy_from),
    ("empty.memory_format", empty),
    ("empty_strided", empty_strided),
    ("_efficientzerotensor", zeros),
)
