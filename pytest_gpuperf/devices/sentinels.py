"""Fixed kernels: their times describe the machine and not the user's code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..model.metrics import SENTINEL_COPY, SENTINEL_GEMM, SENTINEL_LAUNCH
from .base import Kernel
from .own_warnings import ignored


SENTINEL_LAUNCHES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes at which a kernel takes 0.2 to 2 ms on a kind of device.

    ``side`` is of the square matrices of a product, of numbers of type ``dtype``.
    ``elements`` of 4 bytes are copied ``copies`` times.
    """

    side: int
    elements: int
    copies: int
    dtype: str = "float32"


ON_CPU: Final = Sizes(side=256, elements=2**20, copies=2)

ON_CUDA: Final = Sizes(side=4096, elements=2**25, copies=4, dtype="bfloat16")
"""Each of the two buffers, of 128 MiB, exceeds the second level cache of a B200 (126 MB).

A product in float32 follows the user's choice of TF32, one in bfloat16 does not.
"""


@contextmanager
def torch_sentinels(
    torch: Any, device: str, sizes: Sizes, threads: int | None = None
) -> Iterator[Mapping[str, Kernel]]:
    """Lend the kernels on *device*; nothing is drawn from torch's random generators.

    No setting of the step's code changes what they run; on the host they have so many
    *threads*. A GPU's memory is handed back at the end: it must not count as the step's.
    """
    with ExitStack() as pinned:
        pinned.enter_context(ignored())
        pinned.enter_context(_modes_off(torch))
        if threads is not None:
            pinned.enter_context(_threads_set(torch, threads))
        if device == "cuda":
            stream = _own_stream(torch)
            pinned.enter_context(_settings_pinned(torch))
            pinned.enter_context(torch.cuda.stream(stream))
            pinned.callback(_hand_back, torch, stream)
        pinned.enter_context(torch.no_grad())
        kernels = _kernels(torch, device, sizes)
        # The caller still has a reference to this dict, and its closures own the
        # buffers. It is emptied first, or the cache would keep them.
        pinned.callback(kernels.clear)
        yield kernels


def _kernels(torch: Any, device: str, sizes: Sizes) -> dict[str, Kernel]:
    def ones(*shape: int, dtype: str = "float32") -> Any:
        return torch.ones(shape, dtype=getattr(torch, dtype), device=device)

    side = sizes.side
    left, right, product = (ones(side, side, dtype=sizes.dtype) for _ in range(3))
    source, target, tiny = ones(sizes.elements), ones(sizes.elements), ones(1)

    def copy() -> None:
        for _ in range(sizes.copies):
            target.copy_(source)

    def launch() -> None:
        for _ in range(SENTINEL_LAUNCHES):
            tiny.zero_()

    return {
        SENTINEL_GEMM.name: lambda: torch.mm(left, right, out=product),
        SENTINEL_COPY.name: copy,
        SENTINEL_LAUNCH.name: launch,
    }


# Settings of torch that the user's code may change, and that would change the kernels.
#
# Not the precision of float32: a product in bfloat16 does not follow it, and torch
# cannot set an inherited one back to inherited.


@contextmanager
def _modes_off(torch: Any) -> Iterator[None]:
    """Let no mode see the calls: ``set_default_device`` is one, and makes them slow."""
    c = torch._C  # noqa: SLF001  there are no public names
    with c.DisableTorchFunction(), c._DisableTorchDispatch():  # noqa: SLF001
        yield


@contextmanager
def _threads_set(torch: Any, threads: int) -> Iterator[None]:
    chosen = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(chosen)


@contextmanager
def _settings_pinned(torch: Any) -> Iterator[None]:
    with ExitStack() as pins:
        pins.enter_context(torch.autocast("cuda", enabled=False))
        pins.enter_context(_deterministic_off(torch))
        pins.enter_context(_reduced_precision_on(torch))
        yield


@contextmanager
def _deterministic_off(torch: Any) -> Iterator[None]:
    """Allow any algorithm: torch refuses products otherwise, or writes memory twice."""
    # ``use_deterministic_algorithms`` also sets inductor's switch, which stays alone.
    choose = torch._C._set_deterministic_algorithms  # noqa: SLF001
    chosen = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    choose(False, warn_only=False)  # noqa: FBT003
    try:
        yield
    finally:
        choose(chosen, warn_only=warns)


@contextmanager
def _reduced_precision_on(torch: Any) -> Iterator[None]:
    """Let cuBLAS add up in bfloat16, as it does by default."""
    choose = torch._C._set_cublas_allow_bf16_reduced_precision_reduction  # noqa: SLF001
    chosen = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()  # noqa: SLF001
    # One switch, or in later releases of torch a pair of them.
    both = chosen if isinstance(chosen, tuple) else (chosen,)
    choose(*(True for _ in both))
    try:
        yield
    finally:
        choose(*both)


# The stream of the sentinels and what cuBLAS keeps for it.
#
# cuBLAS allocates a workspace at the first product of each stream and keeps it: it would
# count in the peak of a step that needs none. The workspace of another stream must stay,
# as a CUDA graph that the user captured on it replays with its address.

CLEAR_WORKSPACES: Final = "_ZN2at4cuda30clearCublasWorkspacesForStreamEP11CUstream_st"
"""The symbol of ``at::cuda::clearCublasWorkspacesForStream``, which Python lacks."""

_streams: dict[int, Any] = {}


def _own_stream(torch: Any) -> Any:
    """Return a stream of the current GPU that nothing else in this process has.

    ``torch.cuda.Stream`` hands out 32 in turns, so one of its streams may be the user's.
    """
    index = torch.cuda.current_device()
    if index not in _streams:
        handle = ctypes.c_void_p()
        error = torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle))
        torch.cuda.check_error(error)
        _streams[index] = torch.cuda.ExternalStream(handle.value)
    return _streams[index]


def _hand_back(torch: Any, stream: Any) -> None:
    """Free what the kernels had allocated."""
    torch.cuda.synchronize()
    clear = _clear_workspaces(torch)
    if clear is not None:
        clear(stream.cuda_stream)
    # Safe with the user's CUDA graphs: it frees blocks that no tensor owns, and none
    # of the private pool of a graph that is alive.
    torch.cuda.empty_cache()


def _clear_workspaces(torch: Any) -> Callable[[int], None] | None:
    """Return what frees the workspaces of a stream; ``None`` if this torch has no such.

    They then stay, and count in every run alike: to free those of all streams is all
    that such a torch can do.
    """
    library = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
    with suppress(OSError, AttributeError):
        clear: Any = getattr(ctypes.CDLL(str(library)), CLEAR_WORKSPACES)
        clear.argtypes, clear.restype = [ctypes.c_void_p], None
        found: Callable[[int], None] = clear
        return found
    return None
