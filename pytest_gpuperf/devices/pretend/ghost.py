"""A tensor that is on the GPU to Python, a wrapper to torch, and real on the CPU inside."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Final

import torch

from . import guesses
from .deep_copies import deep_copy
from .device_names import AUTOCAST_KEY
from .device_names import CPU
from .device_names import CUDA
from .device_names import LAZY
from .insides import INSIDES
from .layouts import shown_as
from .live_memory import MEMORY
from .recorder import WATCH
from .refusal import NeedsGpuError
from .storage import GhostStorage
from .tensor_types import target_of
from .tensor_types import type_name


_make_wrapper = torch.Tensor._make_wrapper_subclass  # noqa: SLF001, the documented way
_set_data = torch._C.TensorBase.data.__set__  # noqa: SLF001
_plain_getitem = torch._C.TensorBase.__getitem__  # noqa: SLF001
_plain_setitem = torch._C.TensorBase.__setitem__  # noqa: SLF001
_host_tensor = torch.tensor
_host_number = torch.scalar_tensor

NUMBERS: Final = (int, float, bool, complex)


def wrap(inner: Any) -> Ghost:
    """Ghost around *inner*, a tensor on the CPU without autograd history."""
    if MEMORY.live is not None:
        MEMORY.live.see(inner)
    if inner.layout is not torch.strided or inner.is_nested:
        return _wrap_unusual(inner)
    INSIDES.made(inner.nbytes)
    ghost: Ghost = _make_wrapper(
        Ghost,
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
        AUTOCAST_KEY,
    )
    ghost.inside = inner
    return ghost


def _wrap_unusual(inner: Any) -> Ghost:
    """Wrap what is not strided or nested."""
    shape, layout = shown_as(inner)
    ghost: Ghost = _make_wrapper(
        Ghost, shape, dtype=inner.dtype, layout=layout, device=LAZY
    )
    ghost.inside = inner
    return ghost


def is_ghost(value: Any) -> bool:
    """Whether *value* is a tensor on the pretend GPU."""
    return type(value) is Ghost


def refresh(ghost: Ghost) -> Ghost:
    """Give *ghost* the shape its inner tensor has got."""
    inner = ghost.inside
    _set_data(ghost, wrap(inner))
    ghost.inside = inner
    return ghost


class Ghost(torch.Tensor):  # type: ignore[misc]  # torch is untyped here
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
        if any(not issubclass(Ghost, kind) for kind in types):
            return NotImplemented
        return execution.execute(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Tell ``nn.Module`` to swap parameters in place, as it does for wrappers."""
        return ["inside"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: object) -> Ghost:
        """Undo ``__tensor_flatten__``."""
        return wrap(inner["inside"])

    def get_device(self) -> int:
        """Return the one device there is."""
        return 0

    @property
    def data(self) -> Any:
        """The tensor without history, whose changes autograd does not see."""
        return wrap(self.inside.detach())

    @data.setter
    def data(self, value: Any) -> None:
        _set_data(self, value)
        self.inside = value.inside.detach()  # one storage, and a shape of its own

    def data_ptr(self) -> int:
        """Address inside."""
        pointer: int = self.inside.data_ptr()
        return pointer

    def untyped_storage(self) -> Any:
        """Storage that says it is on the device."""
        return GhostStorage(self.inside.untyped_storage(), CUDA)

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
        if not isinstance(source, GhostStorage):
            return super().set_(source, *place)
        self.inside.set_(source.real, *place)
        return refresh(self)

    def __getitem__(self, index: Any) -> Any:
        """Index; a list or an array is made a tensor and copied to the device first."""
        __tracebackhide__ = True
        return _plain_getitem(self, _index_on_device(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set; a number comes as a host tensor, as torch does it for CUDA."""
        __tracebackhide__ = True
        if isinstance(value, NUMBERS):
            value = _host_number(value, dtype=self.dtype)
        _plain_setitem(self, _index_on_device(index), value)

    def item(self) -> Any:
        """Read the one element, or guess it."""
        __tracebackhide__ = True
        if INSIDES.hold_values:
            return super().item()
        with guesses.followed():
            super().item()
        return guesses.item(self)

    def tolist(self) -> Any:
        """Copy to the host and list."""
        return self.item() if self.dim() == 0 else self.cpu().tolist()

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
        """Format the number a tensor without dimensions holds."""
        if self.dim() == 0:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self, **_: object) -> str:
        """Show the values, each of which is read."""
        WATCH.sync("Tensor.__repr__", "printing reads every element that is shown")
        shown = repr(self.inside)
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        grad = grad or (", requires_grad=True" if self.requires_grad else "")
        return f"{shown[:-1]}, device='{CUDA}'{grad})"

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
        return super().new(*args, **options)

    def as_subclass(self, cls: Any) -> Ghost:
        """Stay as it is: a tensor's class cannot be added to that of a stand-in."""
        if not issubclass(Ghost, cls):
            name = f"{cls.__module__}.{cls.__qualname__}"
            WATCH.leave_unjudged(
                name, "a tensor of this class is taken for a plain one"
            )
        return self

    def record_stream(self, stream: object) -> None:
        """There is one stream: nothing to record."""

    def __dlpack__(self, **_: object) -> Any:
        """Refuse: what another library does with the memory is not seen."""
        __tracebackhide__ = True
        msg = "only a GPU can judge Tensor.__dlpack__: another library takes the memory"
        raise NeedsGpuError(msg)

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
            rebuild = torch._utils._rebuild_parameter  # noqa: SLF001, in pickles for ever
            return rebuild, (self.detach(), self.requires_grad, OrderedDict())
        return self._reduce_ex_internal(protocol)


def _index_on_device(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_index_on_device, index))
    is_array = type(index).__module__ == "numpy" and index.ndim > 0
    if isinstance(index, list) or is_array:
        return _host_tensor(index).to(LAZY)
    return index


from . import execution  # noqa: E402, which needs Ghost in its turn
