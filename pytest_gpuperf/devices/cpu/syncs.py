"""Operations that would make a host wait for a GPU, marked on the CPU as they run.

Known limits of what a CPU can show:

- Copies between host and device do not exist here: ``.to(device)``, ``.cpu()``,
  ``.numpy()``, ``.tolist()``, ``print(tensor)`` and ``torch.tensor(..., device=)`` pass
  unseen.
- A tensor made before the step that the program would keep on the host on CUDA, too,
  looks like one of the device: reading it is marked. What the step itself makes without
  a device is known (``HostTensors``), and so are the optimisers' host scalars and
  everything below ``torch.utils.data``.
- What happens inside one kernel is not dispatched, so it is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any
from typing import Final

import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import record_function
from torch.utils import _device

from ..allow_sync import marker_of
from ..base import Step
from ..dispatch import Watching
from ..dispatch import redispatch
from ..memory_owners import key_of
from ..memory_owners import storages_of
from ..memory_owners import tensors_in
from ..source_lines import frames
from ..source_lines import own_and_inner
from ..source_lines import torch_path
from ..step_thread import STEPS


# Tensors that a step keeps on the host on CUDA as well: reading them waits for nothing.

FACTORY_FUNCTIONS: Final = frozenset(
    {
        torch.arange,
        torch.empty,
        torch.eye,
        torch.from_numpy,
        torch.full,
        torch.linspace,
        torch.ones,
        torch.rand,
        torch.randint,
        torch.randn,
        torch.randperm,
        torch.tensor,
        torch.zeros,
    }
)
"""Functions that make a tensor on the host unless they are given a device."""

MOVES: Final = frozenset({torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type_as})
"""Methods that may take a tensor to another device, if on a CPU only in name."""


class HostTensors(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Knows, by storage, the tensors made without a device while it is active.

    What is computed from them alone belongs to them; what was moved to a device does
    not, though on a CPU it is the same tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in FACTORY_FUNCTIONS and _is_placeless(args, kwargs):
            self._add(result)
        elif func in MOVES and _names_device(args[1:], kwargs):
            self._remove(result)
        return result

    def contain_all(self, values: Iterable[Any]) -> bool:
        """Whether there are tensors among *values*, and all of them on the host."""
        tensors = list(tensors_in(values))
        return bool(tensors) and all(map(self._contains, tensors))

    def follow(self, values: Iterable[Any], result: Any) -> None:
        """Take in *result*, computed from *values*, if they are all on the host."""
        if self._known and self.contain_all(values):
            for tensor in tensors_in((result,)):
                self._add(tensor)

    def _contains(self, tensor: Any) -> bool:
        return any(key_of(storage) in self._known for storage in storages_of(tensor))

    def _add(self, tensor: Any) -> None:
        for storage in storages_of(tensor):
            key = key_of(storage)
            # A key is an address, which torch gives again: it is forgotten when its
            # storage dies, or a new tensor would pass for the old one.
            self._known[key] = weakref.ref(storage, partial(self._forget, key))

    def _forget(self, key: int, _: object) -> None:
        self._known.pop(key, None)

    def _remove(self, tensor: Any) -> None:
        for storage in storages_of(tensor):
            self._known.pop(key_of(storage), None)


def _is_placeless(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether nothing says a device: no argument, no tensor copied, no default."""
    return (
        kwargs.get("device") is None
        # What ``torch.set_default_device`` has set; there is no public way to read it
        # without making a tensor.
        and _device.CURRENT_DEVICE is None
        and not any(tensors_in((*args, *kwargs.values())))
    )


def _names_device(args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    named = (*args, *kwargs.values())
    return any(isinstance(a, (str, int, torch.device, torch.Tensor)) for a in named)


Arguments = Sequence[Any]
Keywords = Mapping[str, Any]

WAITS_BY_OP: Final[Mapping[str, int]] = {
    "aten::_local_scalar_dense": 1,
    "aten::nonzero": 1,
    "aten::masked_select": 1,
    "aten::masked_scatter_backward": 1,
    "aten::_unique": 1,
    "aten::_unique2": 1,
    "aten::unique_dim": 3,
    "aten::unique_consecutive": 1,
    "aten::unique_dim_consecutive": 1,
    "aten::bincount": 2,
    "aten::equal": 1,
    "aten::allclose": 1,
    "aten::_coalesce": 5,
    "aten::_to_sparse": 1,
    "aten::_linalg_check_errors": 1,
    "aten::_linalg_eigh": 1,
    "aten::_linalg_svd": 2,
    "aten::linalg_eig": 2,
    "aten::linalg_matrix_exp": 1,
    "aten::linalg_pinv": 2,
    "aten::cholesky": 1,
    "aten::cholesky_inverse": 1,
    "aten::_fused_moving_avg_obs_fq_helper": 1,
}
"""Waits on CUDA per call, for all arguments; found in torch 2.13's CUDA libraries."""

HOST_READERS: Final = {
    ("optim/optimizer.py", "_get_value"),
    ("optim/swa_utils.py", "update_parameters"),
}
"""Functions of torch that read scalars which live on the host on CUDA, too."""

STEP_LISTS: Final = ("state_steps", "device_state_steps")
"""Local names of the optimisers' lists of ``step`` counters, host tensors on CUDA."""

DEVICE_STEPS: Final = "optim/asgd.py"
"""The one optimiser that keeps its scalars on the parameters' device."""


def mark_syncs(step: Step, root: str = "") -> Step:
    """Wrap *step*: each wait is inside a ``SYNC_MARKER`` range with the waiting line.

    That is the line of the user's own code around *root*.
    """

    def marked(*arguments: object) -> object:
        host = HostTensors()
        with STEPS.inside(host), STEPS.inside(SyncMarkers(host, root)):
            return step(*arguments)

    return marked


class SyncMarkers(Watching):
    """Puts a ``record_function`` range a wait around each operation that would wait."""

    def __init__(self, host: HostTensors, root: str) -> None:
        super().__init__()
        self._host = host
        self._root = root

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        with ExitStack() as ranges:
            for marker in self._markers(func.name(), args, kwargs):
                ranges.enter_context(record_function(marker))
            result = redispatch(self, func, args, kwargs)
        self._host.follow((*args, *kwargs.values()), result)
        return result

    def _markers(self, op: str, args: Arguments, kwargs: Keywords) -> list[str]:
        waits = waits_of(op, args, kwargs)
        if not waits or self._host.contain_all((*args, *kwargs.values())):
            return []
        stack = list(frames())
        # Walking the stack costs far more than the two checks above, so it comes last.
        if _reads_host(stack, args):
            return []
        return [marker_of(*own_and_inner(self._root, stack))] * waits


def waits_of(op: str, args: Arguments, kwargs: Keywords) -> int:
    """How often the host would wait in one call of *op* (``aten::name.overload``)."""
    name = op.partition(".")[0]
    fixed = WAITS_BY_OP.get(name)
    if fixed is not None:
        return fixed
    rule = WAITS_BY_ARGUMENTS.get(name)
    return rule(args, kwargs) if rule is not None else 0


def _waits_of_index(args: Arguments, _: Keywords) -> int:
    """One wait per mask: its true elements are counted for the result's size."""
    return len(_masks(args[1]))


def _waits_of_index_put(args: Arguments, kwargs: Keywords) -> int:
    """One wait per mask, unless the call becomes ``masked_fill``.

    A 0-dim value is taken for a Python number, which is what it nearly always was.
    """
    indices = [index for index in args[1] if index is not None]
    masks = _masks(indices)
    accumulate = _argument(args, 3, kwargs.get("accumulate", False))
    is_fill = len(indices) == len(masks) == 1 and args[2].dim() == 0 and not accumulate
    return 0 if is_fill else len(masks)


def _argument(args: Arguments, place: int, otherwise: Any) -> Any:
    return args[place] if len(args) > place else otherwise


def _masks(indices: Iterable[Any]) -> list[Any]:
    boolean = (torch.bool, torch.uint8)
    return [i for i in indices if i is not None and i.dtype in boolean]


def _waits_of_repeat(args: Arguments, kwargs: Keywords) -> int:
    """Sum and sign of the repeats are read, unless the output's size is given."""
    return 2 if len(args) == 1 and kwargs.get("output_size") is None else 0


def _waits_of_histc(args: Arguments, kwargs: Keywords) -> int:
    """Both ends of the range are read where they are equal, as by default."""
    least = _argument(args, 2, kwargs.get("min", 0))
    most = _argument(args, 3, kwargs.get("max", 0))
    return 2 if least == most else 0


def _waits_of_isin(args: Arguments, kwargs: Keywords) -> int:
    """Two sorts with ``_unique`` above torch's own threshold of test elements."""
    if not all(isinstance(a, torch.Tensor) for a in args[:2]):
        return 0
    # The threshold of ``isin`` in torch's TensorCompare.cpp.
    is_large = args[1].numel() >= 10.0 * float(args[0].numel()) ** 0.145
    return 2 if is_large and not kwargs.get("assume_unique") else 0


def _waits_of_normal(args: Arguments, kwargs: Keywords) -> int:
    """A tensor of deviations is checked for negative ones, again for a new result."""
    if len(args) == 1 or not isinstance(args[1], torch.Tensor):
        return 0
    return 2 if kwargs.get("out") is None else 1


def _waits_of_searchsorted(_: Arguments, kwargs: Keywords) -> int:
    """Both ends of a sorter are checked."""
    return 2 if kwargs.get("sorter") is not None else 0


WAITS_BY_ARGUMENTS: Final[Mapping[str, Callable[[Arguments, Keywords], int]]] = {
    "aten::index": _waits_of_index,
    "aten::_unsafe_index": _waits_of_index,
    "aten::index_put": _waits_of_index_put,
    "aten::index_put_": _waits_of_index_put,
    "aten::_index_put_impl_": _waits_of_index_put,
    "aten::_unsafe_index_put": _waits_of_index_put,
    "aten::repeat_interleave": _waits_of_repeat,
    "aten::histc": _waits_of_histc,
    "aten::isin": _waits_of_isin,
    "aten::normal": _waits_of_normal,
    "aten::searchsorted": _waits_of_searchsorted,
}
"""Waits on CUDA where the arguments decide."""


def _reads_host(stack: Sequence[FrameType], args: Arguments) -> bool:
    paths = [torch_path(frame) for frame in stack]
    if any(path is not None and path.startswith("utils/data/") for path in paths):
        return True
    optim = [
        (path, frame)
        for path, frame in zip(paths, stack, strict=True)
        if path is not None and path.startswith("optim/")
    ]
    if not optim or any(path == DEVICE_STEPS for path, _ in optim):
        return False
    # The innermost frame of an optimizer is the one that reads; those outside of it
    # only call.
    path, frame = optim[0]
    return (path, frame.f_code.co_name) in HOST_READERS or _is_counter(args, frame)


def _is_counter(args: Arguments, frame: FrameType) -> bool:
    """Whether the first argument is one of the frame's ``step`` counters."""
    names = frame.f_locals
    counters = [c for name in STEP_LISTS for c in names.get(name) or ()]
    return bool(args) and any(counter is args[0] for counter in counters)
