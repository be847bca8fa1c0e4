"""A tensor: on the GPU for Python, a wrapper for torch, and real on the CPU inside."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import torch
from torch import _tensor_str
from torch._C import DispatchKey
from torch._library.simple_registry import GenericTorchDispatchRuleHolder
from torch.utils import dlpack

from ...errors import ErrorId
from . import guesses
from .device_names import AUTOCAST_KEY, CPU, CUDA, LAZY, target_of, type_name
from .errors import NeedsGpuError
from .memory import SIMULATED_MEMORY
from .patches import Patch
from .recorder import WATCH
from .sync_rules import release_of
from .tensor_values import BACKING, GpuStorage


# ``copy.deepcopy`` of tensors on the device.


def deep_copy(gpu_tensor: Any, memo: dict[int, Any]) -> Any:
    """Copy *gpu_tensor*, its gradient and its users' attributes.

    Raises torch's own ``RuntimeError`` for a tensor that has a history.
    """
    if id(gpu_tensor) in memo:
        return memo[id(gpu_tensor)]
    if not gpu_tensor.is_leaf:
        msg = (
            "Only Tensors created explicitly by the user (graph leaves) support the "
            "deepcopy protocol at the moment."
        )
        raise RuntimeError(msg)
    with torch.no_grad():
        copied = gpu_tensor.detach().clone()
    memo[id(gpu_tensor)] = copied
    for name, value in gpu_tensor.__dict__.items():
        if name != "inside":
            setattr(copied, name, copy.deepcopy(value, memo))
    copied.requires_grad_(gpu_tensor.requires_grad)
    if gpu_tensor.grad is not None:
        copied.grad = copy.deepcopy(gpu_tensor.grad, memo)
    return copied


# Layouts that are not strided, as torch's core must see them.

KNOWN: Final = (torch.strided, torch.sparse_coo)
NO_RULES: Final = "no rules are known for this layout"


def is_unusual(tensor: Any) -> bool:
    """Whether *tensor* is nested or not strided."""
    return tensor.layout is not torch.strided or bool(tensor.is_nested)


class Shown:
    """Whether any such tensor has been made in this process; most make none."""

    any = False


SHOWN: Final = Shown()


def shown_as(inner: Any) -> tuple[Any, Any]:
    """Shape and layout of the wrapper around *inner*, of which only some are judged.

    A compressed sparse tensor is shown as dense: autograd would ask a wrapper of its
    own layout for what it lacks, and end the process. A nested one has no shape and is
    shown as if it were padded.
    """
    SHOWN.any = True
    leave_unknown_layouts([inner])
    if inner.is_nested:
        sizes = inner._nested_tensor_size()  # noqa: SLF001, there is no public one
        return (len(sizes), *sizes.amax(0).tolist()), torch.strided
    is_known = inner.layout in KNOWN
    return inner.shape, inner.layout if is_known else torch.strided


def leave_unknown_layouts(tensors: Iterable[Any]) -> None:
    """Leave unchecked what makes or takes tensors of a layout without rules."""
    for tensor in tensors:
        if tensor.is_nested:
            WATCH.leave_unchecked("nested tensors", NO_RULES)
        elif tensor.layout not in KNOWN:
            WATCH.leave_unchecked(str(tensor.layout), NO_RULES)


NESTED_KEYS: Final = AUTOCAST_KEY.add(DispatchKey.NestedTensor).add(
    DispatchKey.AutogradNestedTensor
)
"""Without them torch's core takes composite operations apart as those of dense tensors."""

ZERO_KEYS: Final = AUTOCAST_KEY.add(DispatchKey.ZeroTensor)
"""Of a tangent that is zero: torch's core leaves out what would only give zeros."""

_make_wrapper = torch.Tensor._make_wrapper_subclass  # noqa: SLF001, the documented way
_set_data = torch._C.TensorBase.data.__set__  # noqa: SLF001
_plain_setitem = torch._C.TensorBase.__setitem__  # noqa: SLF001
_host_number = torch.scalar_tensor
_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001
_function_modes = torch._C._len_torch_function_stack  # noqa: SLF001

SELECT: Final = torch.ops.aten.select.int
ELEMENT_READ: Final = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001
"""What reads one element."""

NUMBERS: Final = (int, float, bool, complex)

NUMBERS_COME_FROM_HOST: Final = release_of(torch.__version__) < (2, 15)
"""Before pull requests 188267, 188330 and 195787, which set them with a fill."""

ADDRESS_FACTOR: Final = 2**15
"""Factor between addresses of storages on the host and those on the device: within 63 bits."""


def wrap(inner: Any) -> GpuTensor:
    """GpuTensor around *inner*, a tensor on the CPU without autograd history."""
    if SIMULATED_MEMORY.live is not None:
        SIMULATED_MEMORY.live.see(inner)
        SIMULATED_MEMORY.live.locate(inner)
    return wrap_view(inner)


def wrap_view(inner: Any) -> GpuTensor:
    """GpuTensor around *inner*, a tensor whose memory is known."""
    is_inference = inner.is_inference()
    if is_inference is not torch.is_inference_mode_enabled():
        # A view of a tensor from outside of the mode is none of the mode's, and torch
        # gives it a version that it refuses to those of the mode.
        with torch.inference_mode(is_inference):
            return _wrapped(inner)
    return _wrapped(inner)


def _wrapped(inner: Any) -> GpuTensor:
    if is_unusual(inner):
        return _wrap_unusual(inner)
    BACKING.made(inner.nbytes)
    gpu_tensor: GpuTensor = _make_wrapper(
        GpuTensor,
        inner.shape,
        inner.stride(),
        inner.storage_offset(),
        None,
        inner.dtype,
        torch.strided,
        LAZY,
        False,  # noqa: FBT003, pin_memory: positional is a fifth faster
        False,  # noqa: FBT003, requires_grad
        None,
        False,  # noqa: FBT003, dispatch_device
        False,  # noqa: FBT003, dispatch_layout
        ZERO_KEYS if inner._is_zerotensor() else AUTOCAST_KEY,  # noqa: SLF001
    )
    gpu_tensor.inside = inner
    return gpu_tensor


def _wrap_unusual(inner: Any) -> GpuTensor:
    """Wrap what is not strided or nested."""
    shape, layout = shown_as(inner)
    gpu_tensor: GpuTensor = _make_wrapper(
        GpuTensor,
        shape,
        dtype=inner.dtype,
        layout=layout,
        device=LAZY,
        _extra_dispatch_keys=NESTED_KEYS if inner.is_nested else AUTOCAST_KEY,
    )
    gpu_tensor.inside = inner
    return gpu_tensor


PARAMETER: Final = torch.nn.Parameter


def is_gpu_tensor(value: Any) -> bool:
    """Whether *value* is a tensor on the simulated GPU; its parameters have torch's class."""
    kind = type(value)
    is_parameter = kind is PARAMETER and "inside" in value.__dict__
    return kind is GpuTensor or is_parameter or kind in of_subclasses


def refresh(gpu_tensor: GpuTensor) -> GpuTensor:
    """Give *gpu_tensor* the shape its inner tensor has got."""
    inner = gpu_tensor.inside
    _set_data(gpu_tensor, wrap(inner))
    gpu_tensor.inside = inner
    return gpu_tensor


class GpuTensor(torch.Tensor):  # type: ignore[misc]  # torch is untyped here
    """See the module. ``inside`` is the tensor inside."""

    inside: Any
    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl  # noqa: SLF001

    device = property(lambda _: CUDA)
    is_cuda = property(lambda _: True)
    is_cpu = property(lambda _: False)
    is_meta = property(lambda _: False)
    is_lazy = property(lambda _: False)
    layout = property(lambda self: self.inside.layout)
    is_sparse_csr = property(lambda self: self.inside.is_sparse_csr)
    is_nested = property(lambda self: self.inside.is_nested)

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation on the tensors inside."""
        __tracebackhide__ = True
        # Another library's subclass is among the arguments: its own dispatch must run
        # first.
        if not all(map(_is_own, types)):
            return NotImplemented
        return execution.execute(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Tell ``nn.Module`` to swap parameters in place, as it does for wrappers."""
        return ["inside"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: object) -> GpuTensor:
        """Undo ``__tensor_flatten__``."""
        return wrap(inner["inside"])

    def get_device(self) -> int:
        """Return the one device there is."""
        return 0

    @property
    def data(self) -> Any:
        """The tensor without history; autograd does not see changes to it."""
        return wrap(self.inside.detach())

    @data.setter
    def data(self, value: Any) -> None:
        if not is_gpu_tensor(value):
            torch.utils.swap_tensors(self, PARAMETER(value, self.requires_grad))
            return
        # It shares the storage, and may later change its shape alone.
        inside = value.inside.detach()
        if value.is_inference() is not self.is_inference():
            # torch takes both kinds on a GPU, but compares those of other devices.
            with torch.inference_mode(self.is_inference()):
                value = _wrapped(inside)
        _set_data(self, value)
        self.inside = inside

    def data_ptr(self) -> int:
        """Address inside, or one that no other tensor has where there are no values."""
        inside = self.inside
        if not inside.is_meta or not inside.numel():
            pointer: int = inside.data_ptr()
            return pointer
        storage: int = inside.untyped_storage()._cdata  # noqa: SLF001, as in ``memory``
        return storage * ADDRESS_FACTOR + int(
            inside.storage_offset() * inside.element_size()
        )

    def untyped_storage(self) -> Any:
        """Storage that says it is on the device."""
        return GpuStorage(self.inside.untyped_storage(), CUDA)

    def _typed_storage(self) -> Any:
        return torch.storage.TypedStorage(
            wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True
        )

    def storage(self) -> Any:
        """Typed storage that says it is on the device."""
        return self._typed_storage()

    def set_(self, source: Any = None, *place: Any) -> Any:
        """Point at another storage or tensor."""
        if isinstance(source, torch.storage.TypedStorage):
            source = source._untyped_storage  # noqa: SLF001, its only name
        if not isinstance(source, GpuStorage):
            return torch.Tensor.set_(self, source, *place)
        self.inside.set_(source.real, *place)
        return refresh(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set; a number comes as a host tensor, as older torch does it for CUDA."""
        __tracebackhide__ = True
        if NUMBERS_COME_FROM_HOST and isinstance(value, NUMBERS):
            value = _host_number(value, dtype=self.dtype)
        _plain_setitem(self, index, value)

    def item(self) -> Any:
        """Read the one element, or guess it."""
        __tracebackhide__ = True
        if BACKING.has_values:
            if _is_read_at_once(self):
                return execution.read_element(self)
            return torch.Tensor.item(self)
        with guesses.followed():
            # It runs for its wait, which is recorded; the number it returns is
            # replaced.
            torch.Tensor.item(self)
        return guesses.item(self)

    def __float__(self) -> float:
        """Read the one element as a number."""
        __tracebackhide__ = True
        is_plain = BACKING.has_values and self.inside.is_floating_point()
        if is_plain and _is_read_at_once(self):
            return float(execution.read_element(self))
        return float(torch.Tensor.__float__(self))

    def tolist(self) -> Any:
        """Copy to the host and list."""
        if self.dim() == 0 and not BACKING.has_values:
            return self.item()
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse, unless forced, with torch's words."""
        __tracebackhide__ = True
        if force:
            return self.detach().cpu().numpy()
        msg = (
            f"can't convert {CUDA} device type tensor to numpy. Use Tensor.cpu() to "
            "copy the tensor to host memory first."
        )
        raise TypeError(msg)

    def __array__(self, dtype: Any = None, *_: object, **__: object) -> Any:
        """Refuse as ``numpy`` does."""
        __tracebackhide__ = True
        return self.numpy()

    def __format__(self, spec: str) -> str:
        """Format the number that a tensor without dimensions contains."""
        if self.dim() == 0:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self, **_: object) -> str:
        """Show the values, each of which is read as torch does it to format them."""
        shown = repr(_as_user_has_it(self))
        if BACKING.has_values and not is_unusual(self):
            with torch.no_grad():
                _tensor_str._tensor_str(self.detach(), 0)  # noqa: SLF001
        else:
            WATCH.sync("Tensor.__repr__", "printing reads every element that is shown")
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        grad = grad or (", requires_grad=True" if self.requires_grad else "")
        name = "Parameter containing:\n" if isinstance(self, PARAMETER) else ""
        return f"{name}{shown[:-1]}, device='{CUDA}'{grad})"

    def type(self, dtype: Any = None, non_blocking: bool = False, **_: object) -> Any:  # noqa: FBT001, FBT002, torch's
        """Name the type as CUDA's, or convert to another."""
        if dtype is None:
            return type_name(self.dtype, "cuda")
        device, target = target_of(dtype)
        place = CPU if device == "cpu" else LAZY
        return self.to(place, target, non_blocking=non_blocking)

    def pin_memory(self, *_: object, **__: object) -> Any:
        """Refuse with torch's words."""
        __tracebackhide__ = True
        msg = (
            f"cannot pin '{type_name(self.dtype, 'cuda')}' only dense CPU tensors can be "
            "pinned"
        )
        raise RuntimeError(msg)

    def is_pinned(self, *_: object, **__: object) -> bool:
        """Device memory is not."""
        return False

    def new(self, *args: Any, **options: Any) -> Any:
        """Make a tensor of this kind, with the oldest of torch's constructors."""
        if self.is_sparse and args:
            return torch.sparse_coo_tensor(*args, check_invariants=False)
        return torch.Tensor.new(self, *args, **options)

    def as_subclass(self, cls: Any) -> GpuTensor:
        """Return another GPU tensor of the same values, of the user's class *cls*."""
        made = class_on_gpu(cls)
        if made is None:
            name = f"{cls.__module__}.{cls.__qualname__}"
            said = "a tensor of this class is taken for a plain one"
            WATCH.leave_unchecked(name, said)
        if made is None or made is type(self):
            return self
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, as torch's own
            found: GpuTensor = torch.ops.aten.alias(self)
        found.__class__ = made
        return found

    def record_stream(self, stream: object) -> None:  # noqa: ARG002, torch's
        """Note that the block may be given back only once *stream* is done with it."""
        if SIMULATED_MEMORY.live is not None:
            SIMULATED_MEMORY.live.several_streams = True

    def __dlpack__(self, **_: object) -> Any:
        """Refuse: what another library does with the memory is not seen."""
        __tracebackhide__ = True
        msg = "only a GPU can judge Tensor.__dlpack__: another library takes the memory"
        raise NeedsGpuError(msg, ErrorId.GP308)

    def share_memory_(self) -> Any:
        """Device memory is shared as it is."""
        return self

    def is_shared(self) -> bool:
        """Device memory is."""
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy on the device."""
        return deep_copy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a plain CUDA tensor or parameter would be."""
        if getattr(self, "_is_param", False):
            rebuild = torch._utils._rebuild_parameter_with_state  # noqa: SLF001, in pickles for ever
            own = {n: v for n, v in vars(self).items() if n not in OWN_ATTRIBUTES}
            return rebuild, (self.detach(), self.requires_grad, OrderedDict(), own)
        return self._reduce_ex_internal(protocol)


from . import dispatch as execution  # noqa: E402, which needs GpuTensor in its turn


# Memory that torch lends to itself by way of DLPack: one storage, two tensors.


class Capsule:
    """Replaces a DLPack capsule of *gpu_tensor*; only ``from_dlpack`` here can open it."""

    def __init__(self, gpu_tensor: GpuTensor) -> None:
        self.gpu_tensor = gpu_tensor


# How torch's core reaches a GPU tensor.

_rule_of = GenericTorchDispatchRuleHolder.find


def dispatch_patches() -> Iterator[Patch]:
    """A rule of ``torch.library.register_torch_dispatch`` for each operation."""
    yield Patch(GenericTorchDispatchRuleHolder, "find", _rule_of_gpu_tensors)


def _is_read_at_once(tensor: GpuTensor) -> bool:
    """Whether what torch would call can be: by its dispatcher it takes half as long again."""
    return tensor.inside.numel() == 1 and not _modes() and not _function_modes()


def _rule_of_gpu_tensors(holder: Any, kind: type) -> Any:
    # For a tensor without a rule torch first asks if it is a DTensor, and to know what
    # one is it imports torch.distributed.tensor and sympy: 0.7 s.
    if kind is GpuTensor or kind is PARAMETER or kind in of_subclasses:
        return _dispatch_gpu_tensor
    return _rule_of(holder, kind)


def _is_own(kind: type) -> bool:
    is_known = kind is PARAMETER or kind in of_subclasses
    return is_known or issubclass(GpuTensor, kind)


def _dispatch_gpu_tensor(
    cls: object,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Run an operation, as another library's subclass says if one is among its arguments.

    Behind a rule that returns ``NotImplemented`` torch calls no method of another class,
    but the rule again, and without the class in front: so the others are asked here.
    """
    __tracebackhide__ = True
    if not isinstance(cls, type):
        return NotImplemented
    if func is ELEMENT_READ:
        return execution.read_element(args[0])
    if func is SELECT and len(types) == 1 and type(args[0]) is GpuTensor:
        return execution.select(args)
    others = [k for k in types if k is not GpuTensor and not _is_own(k)]
    for kind in others:
        result = kind.__torch_dispatch__(func, types, args, kwargs or {})  # type: ignore[attr-defined]
        if result is not NotImplemented:
            return result
    return NotImplemented if others else execution.execute(func, args, kwargs or {})


# Tensors of a user's class that changes no operation, such as the edges of torch-geometric.

of_subclasses: Final[set[type]] = set()
"""Classes of GPU tensors that inherit from a user's class as well."""

_on_gpu: Final[dict[type, type]] = {}


def class_on_gpu(cls: type) -> type | None:
    """Return the class of GPU tensors that are of *cls*; ``None`` if it dispatches itself."""
    if issubclass(GpuTensor, cls):
        return GpuTensor
    if cls in of_subclasses:
        return cls
    if cls.__torch_dispatch__ is not _NO_DISPATCH:  # type: ignore[attr-defined]
        return None
    if cls not in _on_gpu:
        _on_gpu[cls] = _subclass_of(cls)
        of_subclasses.add(_on_gpu[cls])
    return _on_gpu[cls]


_NO_DISPATCH: Final = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001, torch names it nowhere else


def _subclass_of(cls: Any) -> type:
    """Make the class of GPU tensors that are of *cls*: with what both have of their own."""
    known = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    users = {name for kind in known for name in vars(kind)}
    own = {n: v for n, v in vars(GpuTensor).items() if n not in users | OF_PLAIN}
    made: type = type(cls)(cls.__name__, (cls,), {**own, "__module__": cls.__module__})
    users_own = cls.__torch_function__

    def function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        __tracebackhide__ = True
        plain = tuple(cls if kind is made else kind for kind in types)
        return users_own(func, plain, args, kwargs)

    # Torch takes it away from a class that dispatches. It gets the user's class: a
    # result on the host is of that.
    type.__setattr__(made, "__torch_function__", staticmethod(function))
    return made


OF_PLAIN: Final = frozenset({"__annotations__", "__dict__", "__doc__", "__weakref__"})
"""What a class of GPU tensors has of its own and others do not get."""


def _as_user_has_it(tensor: Any) -> Any:
    """Return its values as a tensor of the host, of the user's class if it has one."""
    kind = type(tensor)
    inside: Any = tensor.inside
    return inside.as_subclass(kind.__mro__[1]) if kind in of_subclasses else inside


# Parameters, whose class is torch's own: ``type(net.weight) is nn.Parameter``.

OWN_ATTRIBUTES: Final = frozenset({"inside", "_is_param"})
"""Attributes that make a GPU tensor of a parameter."""

OF_CLASS: Final = frozenset({"__new__", "__deepcopy__", "__tensor_flatten__"})
"""What a parameter does as torch's own."""


class _DispatchOfParameters:
    """``Parameter.__torch_dispatch__``, which classes that inherit from it do not get.

    Their tensors on the host would be dispatched to Python as well.
    """

    def __get__(self, _: object, owner: type) -> Any:
        return (GpuTensor if owner is PARAMETER else torch.Tensor).__torch_dispatch__


def parameter_patches() -> Iterator[Patch]:
    """What a GPU tensor has of its own, for parameters that are GPU tensors."""
    yield Patch(PARAMETER, "__new__", _of_gpu_tensors(PARAMETER.__new__))
    yield Patch(PARAMETER, "__torch_dispatch__", _DispatchOfParameters())
    for name, own in vars(GpuTensor).items():
        if isinstance(own, property):
            yield Patch(PARAMETER, name, _own_property(name, own))
        elif inspect.isfunction(own) and name not in OF_CLASS:
            yield Patch(PARAMETER, name, _own_method(name, own))


def _of_gpu_tensors(new: Callable[..., Any]) -> Callable[..., Any]:
    def made(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:  # noqa: FBT001, FBT002, torch's
        found = new(cls, data.detach() if is_gpu_tensor(data) else data, requires_grad)
        if cls is PARAMETER and is_gpu_tensor(found):
            found.__class__ = PARAMETER
        return found

    return made


def _own_method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    plain = vars(PARAMETER).get(name)

    @functools.wraps(own)
    def called(tensor: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        method = own if is_gpu_tensor(tensor) else plain or getattr(torch.Tensor, name)
        return method(tensor, *args, **options)

    return called


def _own_property(name: str, own: Any) -> property:
    def of(tensor: Any) -> Any:
        return own if is_gpu_tensor(tensor) else getattr(torch.Tensor, name)

    def read(tensor: Any) -> Any:
        return of(tensor).__get__(tensor)

    def write(tensor: Any, value: Any) -> None:
        of(tensor).__set__(tensor, value)

    return property(read, write)


def exchange_patches() -> Iterator[Patch]:
    """Both directions, by both of their names."""
    for owner in (torch, dlpack):
        yield Patch(owner, "from_dlpack", _unpacking(owner.from_dlpack))
        yield Patch(owner, "to_dlpack", _packing(owner.to_dlpack))


def _unpacking(from_dlpack: Callable[..., Any]) -> Callable[..., Any]:
    def unpack(packed: Any, **options: Any) -> Any:
        if isinstance(packed, Capsule):
            packed = packed.gpu_tensor
        if not is_gpu_tensor(packed):
            return from_dlpack(packed, **options)
        _refuse_gradients(packed)
        return packed.clone() if options.get("copy") else packed.detach()

    return unpack


def _packing(to_dlpack: Callable[..., Any]) -> Callable[..., Any]:
    def pack(tensor: Any) -> Any:
        return Capsule(tensor) if is_gpu_tensor(tensor) else to_dlpack(tensor)

    return pack


def _refuse_gradients(tensor: Any) -> None:
    __tracebackhide__ = True
    if tensor.requires_grad:
        msg = "Can't export tensors that require gradient, use tensor.detach()"
        raise BufferError(msg)
