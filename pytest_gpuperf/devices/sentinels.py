"""What else keeps a machine busy: fixed kernels, threads that queue, a shared core.

The times of the fixed kernels describe the machine and not the user's code.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ..model.metrics import SENTINEL_COPY, SENTINEL_GEMM, SENTINEL_LAUNCH
from .base import Kernel, ThreadWork
from .preflight import ignored
from .process_time import (
    PROC,
    STATE_TO_PARENT,
    HostClock,
    cpu_ticks,
    family,
    queue_times_ns,
    stats_of_all,
)
from .step_thread import STEPS


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


# Evidence of a contended machine: threads that wait for a core, a core that is shared.


# CPU time of other programs: neither this process nor its children.

BUSY_FIELDS: Final = (0, 1, 2, 5, 6, 7)
"""Columns of ``cpu`` in /proc/stat: user, nice, system, irq, softirq, steal (proc(5))."""


def others_ns(proc: Path = PROC) -> int | None:
    """CPU time in ns that all but this process and its descendants had since the start.

    To 10 ms or so, as the kernel counts it. ``None`` off Linux.
    """
    try:
        busy = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(busy[column]) for column in BUSY_FIELDS)
        own = sum(map(cpu_ticks, family(proc / str(os.getpid()))))
    # Off Linux there is no such file, and a sandbox may show an empty or a masked one:
    # all of it means that nothing is known, which is no error.
    except (OSError, IndexError, ValueError):
        return None
    # The kernel counts in clock ticks, mostly of 10 ms.
    return round((ticks - own) * 1e9 / os.sysconf("SC_CLK_TCK"))


def relatives(proc: Path = PROC) -> frozenset[int]:
    """Return this process, those that it comes from, and those that come from it.

    This process alone off Linux.
    """
    me = os.getpid()
    with suppress(OSError, IndexError, ValueError):
        parents = {pid: int(f[STATE_TO_PARENT]) for pid, f in stats_of_all(proc)}
        below = {pid for pid in parents if _descends(pid, parents)}
        return frozenset({me, *_above(me, parents), *below})
    return frozenset({me})


def _above(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def _descends(pid: int | None, parents: Mapping[int, int]) -> bool:
    """Whether *pid* is this process or comes from it."""
    while pid is not None:
        if pid == os.getpid():
            return True
        pid = parents.get(pid)
    return False


def run_queue_wait_ns(source: Path | None = None) -> int | None:
    """Nanoseconds the thread of the steps was runnable and not running; ``None`` off Linux.

    The second field of schedstat (Documentation/scheduler/sched-stats.rst). A thread
    that sleeps or waits for data is not on the run queue and does not count.
    """
    try:
        # Read at the edges of timed rounds: as buffered text it takes twice as long.
        with (source or STEPS.proc / "schedstat").open("rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None


CHILDREN: Final = Path("/proc/thread-self/children")

A_NAP_SECONDS: Final = 1e-4


def work_so_far(children: Path = CHILDREN) -> ThreadWork | None:
    """Return what this thread did so far; ``None`` where that says not what it takes.

    So with children, which may take its core, and on kernels that count no waits.
    """
    try:
        with children.open("rb", buffering=0) as file:
            is_alone = not file.read(1)
    except OSError:
        return None
    if not (is_alone and counts_waits()):
        return None
    return ThreadWork(
        thread_ns=HostClock.thread_ns(),
        process_ns=HostClock.process_ns(),
        waits=_waits_so_far(),
    )


@lru_cache(maxsize=1)
def counts_waits() -> bool:
    """Whether this kernel counts how often a thread lets its core go by itself."""
    before, never_free = _waits_so_far(), Lock()
    never_free.acquire()
    never_free.acquire(timeout=A_NAP_SECONDS)
    return _waits_so_far() > before


def _waits_so_far() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def family_wait_ns(proc: Path = PROC) -> int | None:
    """Nanoseconds that threads of this process and its descendants waited for a core.

    The sum over all that live now, so time that a step spends waiting for one of them
    is never more than it. ``None`` off Linux, or where the kernel keeps no such count.
    """
    try:
        me = family(proc / str(os.getpid()))
        waits = [waited for member in me for _, waited in queue_times_ns(member)]
    except (OSError, IndexError, ValueError):
        return None
    return sum(waits) if waits else None


# How long a core takes for a fixed loop: longer with a neighbour that shares it.
#
# On a virtual machine nothing else shows that another guest computes on the core's second
# thread: no waiting is counted, and no clock can be read. On one of 2 cores the loop then
# took 1.4 to 1.5 times as long, for seconds, and a training step 1.2 to 1.6 times.

TURNS: Final = 1000
"""Turns of the loop: it takes 25 to 100 us, and almost no memory."""

LOOPS: Final = 2
"""Loops of a reading, of which the quicker counts: the first one after a step finds the
interpreter's code in no cache, and takes a fifth longer."""


def loop_ns() -> int:
    """Return the CPU time of the loop: what it waited for a core does not count."""
    start_ns, total = HostClock.thread_ns(), 0
    for number in range(TURNS):
        total += number
    return HostClock.thread_ns() - start_ns


class CorePace:
    """Times the loop, and keeps the least that it took: that of an undisturbed core."""

    def __init__(self) -> None:
        self.undisturbed_ns: int | None = None

    def read(self) -> int | None:
        """Run the loop; ``None`` where the clock of a thread is too coarse for it."""
        taken = min(loop_ns() for _ in range(LOOPS))
        if taken <= 0:
            return None
        self.undisturbed_ns = min(taken, self.undisturbed_ns or taken)
        return taken
