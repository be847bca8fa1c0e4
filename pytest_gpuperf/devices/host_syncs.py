"""Operations that would make a host wait for a GPU, marked on the CPU as they run.

Known limits of what a CPU can show:

- Copies between host and device do not exist here: ``.to(device)``, ``.cpu()``,
  ``.numpy()``, ``.tolist()``, ``print(tensor)`` and ``torch.tensor(..., device=)`` pass
  unseen.
- A tensor made before the step that the program keeps on the host on CUDA as well
  cannot be told from one of the device: reading it is marked. What the step itself
  makes without a device is known (``HostTensors``), and so are the optimisers' host
  scalars and everything below ``torch.utils.data``.
- What one kernel does inside is not dispatched, so not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any
from typing import Final

import torch
from torch.profiler import record_function

from .call_site import blamed
from .call_site import frames
from .call_site import torch_path
from .dispatch import redispatch
from .host_tensors import HostTensors
from .protocol import Step
from .sync_marker import marker_of
from .watching import Watching


Arguments = Sequence[Any]
Keywords = Mapping[str, Any]

WAITS: Final[Mapping[str, int]] = {
    "aten::_local_scalar_dense": 1,
    "aten::nonzero": 1,
    "aten::masked_select": 1,
    "aten::masked_scatter_backward": 1,
    "aten::_unique": 1,
    "aten::_unique2": 1,
    "aten::unique_dim": 1,
    "aten::unique_consecutive": 1,
    "aten::unique_dim_consecutive": 1,
    "aten::bincount": 2,
    "aten::equal": 1,
    "aten::allclose": 1,
    "aten::_coalesce": 1,
    "aten::_to_sparse": 1,
    "aten::_linalg_check_errors": 1,
    "aten::_linalg_eigh": 1,
    "aten::_linalg_svd": 1,
    "aten::linalg_eig": 1,
    "aten::linalg_matrix_exp": 1,
    "aten::cholesky": 1,
    "aten::cholesky_inverse": 1,
    "aten::_fused_moving_avg_obs_fq_helper": 1,
}
"""Waits on CUDA per call, whatever the arguments; read off torch 2.13's CUDA libraries."""

HOST_READERS: Final = {
    ("optim/optimizer.py", "_get_value"),
    ("optim/swa_utils.py", "update_parameters"),
}
"""Functions of torch that read scalars which live on the host on CUDA, too."""

STEP_LISTS: Final = ("state_steps", "device_state_steps")
"""Local names of the optimisers' lists of ``step`` counters, host tensors on CUDA."""

DEVICE_STEPS: Final = "optim/asgd.py"
"""The one optimiser that keeps its scalars on the parameters' device."""


def mark_syncs(step: Step) -> Step:
    """*step* with a ``SYNC_MARKER`` range around each wait and the waiting line in it."""

    def marked(*arguments: object) -> object:
        with HostTensors() as host, SyncMarkers(host):
            return step(*arguments)

    return marked


class SyncMarkers(Watching):
    """Puts a ``record_function`` range a wait around each operation that would wait."""

    def __init__(self, host: HostTensors) -> None:
        super().__init__()
        self._host = host

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
        if not waits or self._host.hold((*args, *kwargs.values())):
            return []
        stack = list(frames())
        return [] if _reads_host(stack, args) else [marker_of(blamed(stack))] * waits


def waits_of(op: str, args: Arguments, kwargs: Keywords) -> int:
    """How often the host would wait in one call of *op* (``aten::name.overload``)."""
    name = op.partition(".")[0]
    fixed = WAITS.get(name)
    if fixed is not None:
        return fixed
    rule = RULES.get(name)
    return rule(args, kwargs) if rule is not None else 0


def _waits_of_index(args: Arguments, _: Keywords) -> int:
    """One wait per mask, whose true elements are counted for the result's size."""
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
    is_large = args[1].numel() >= 10.0 * float(args[0].numel()) ** 0.145
    return 2 if is_large and not kwargs.get("assume_unique") else 0


def _waits_of_nanmedian(args: Arguments, _: Keywords) -> int:
    """The number of NaN is read where the median is taken over all elements."""
    return int(len(args) == 1)


def _waits_of_normal(args: Arguments, _: Keywords) -> int:
    """A tensor of deviations is checked for negative ones."""
    return int(len(args) > 1 and isinstance(args[1], torch.Tensor))


def _waits_of_searchsorted(_: Arguments, kwargs: Keywords) -> int:
    """Both ends of a sorter are checked."""
    return 2 if kwargs.get("sorter") is not None else 0


RULES: Final[Mapping[str, Callable[[Arguments, Keywords], int]]] = {
    "aten::index": _waits_of_index,
    "aten::_unsafe_index": _waits_of_index,
    "aten::index_put": _waits_of_index_put,
    "aten::index_put_": _waits_of_index_put,
    "aten::_index_put_impl_": _waits_of_index_put,
    "aten::_unsafe_index_put": _waits_of_index_put,
    "aten::repeat_interleave": _waits_of_repeat,
    "aten::histc": _waits_of_histc,
    "aten::isin": _waits_of_isin,
    "aten::nanmedian": _waits_of_nanmedian,
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
    path, frame = optim[0]
    return (path, frame.f_code.co_name) in HOST_READERS or _is_counter(args, frame)


def _is_counter(args: Arguments, frame: FrameType) -> bool:
    """Whether the first argument is one of the frame's ``step`` counters."""
    names = frame.f_locals
    counters = [c for name in STEP_LISTS for c in names.get(name) or ()]
    return bool(args) and any(counter is args[0] for counter in counters)
