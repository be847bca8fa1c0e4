"""Memory of one step as torch's caching allocator and the driver report it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

from ...errors import ErrorId, PreflightError
from ...model.metrics import PEAK_ALLOCATED, PEAK_RESERVED
from ..base import MemoryReading, Step
from ..preflight import wait_for_gpus


RESERVED_NOW: Final = "reserved_bytes.all.current"

ALLOCATOR_COUNTERS: Final = (
    "num_device_alloc",
    "segment.all.allocated",
    "num_alloc_retries",
    RESERVED_NOW,
)
"""Keys of ``torch.cuda.memory_stats`` that move while the allocator still grows."""

PEAK_FIELDS: Final[Mapping[str, str]] = {
    PEAK_ALLOCATED.name: "allocated_bytes.all.peak",
    PEAK_RESERVED.name: "reserved_bytes.all.peak",
}
"""Keys of ``torch.cuda.memory_stats`` by metric."""

RESETS: Final = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
"""Functions of ``torch._C`` behind every way to reset the peaks."""

MOST_ALLOCATOR_EVENTS: Final = 1_000_000
"""Of one recorded step; beyond it torch forgets the oldest."""

IN_USE: Final = "active_allocated"
"""State, in ``torch.cuda.memory_snapshot``, of a block that is in use."""

FORESEEN: Final = "gpuperf_foreseen"
"""Attribute of the simulated GPU's own error: its memory summary, as text."""

NO_CACHING: Final = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def allocator_counters(cuda: Any) -> tuple[int, ...]:
    """Return counters of *cuda*'s allocator that a steady step does not change."""
    stats = cuda.memory_stats()
    return tuple(int(stats.get(name, 0)) for name in ALLOCATOR_COUNTERS)


def refuse_uncached_memory(cuda: Any) -> None:
    """Raise ``PreflightError`` if no allocator counts a peak."""
    if NO_CACHING in os.environ:  # torch asks for its presence, not its value
        msg = (
            f"{NO_CACHING} turns the caching allocator off, so every allocation waits "
            "for the GPU and no peak is counted: unset it to measure"
        )
        raise PreflightError(msg, ErrorId.GP409)
    if cuda.get_allocator_backend() == "pluggable":
        msg = (
            "a pluggable CUDA allocator is in use, which counts no peak memory: "
            "measure with torch's own allocator"
        )
        raise PreflightError(msg, ErrorId.GP409)


def read_memory(
    torch: Any,
    step: Step,
    arguments: Sequence[object],
) -> MemoryReading:
    """Run one step between two readings of torch's CUDA allocator.

    The cache is not emptied: that would change fragmentation and the cost of the next
    allocations, so reserved bytes depend on what the process did before.
    """
    from ..garbage import held_collector
    from ..memory_owners import graphs_alive

    cuda = torch.cuda
    with held_collector() as collector:
        collector.free(cuda.memory_allocated)
        # After the collection: a cycle of the step before would count, and would be freed
        # at a random moment of this one.
        graphs, nodes = graphs_alive()
        wait_for_gpus(torch)
        # After the synchronisation: a block that another stream still uses is given back
        # only when the work of that stream is done.
        cuda.reset_peak_memory_stats()
        collector.begin_step()
        with _peaks_before_resets(torch) as peaks, _replayed_pools(cuda) as pools:
            step(*arguments)
        # What the step frees in the order of a stream is the driver's again once it is
        # done.
        wait_for_gpus(torch)
        after = cuda.memory_stats()
        end_bytes, collecting = cuda.memory_allocated(), collector.collecting
        graph_bytes = _idle_bytes(cuda, pools) if pools else None
        # Last: what it frees is a part of the step's end.
        garbage_bytes = collector.free(cuda.memory_allocated)
    return MemoryReading(
        exact=_with_graphs(_largest([*peaks, _peaks_in(after)]), graph_bytes or 0),
        end_bytes=end_bytes,
        graphs=graphs,
        nodes=nodes,
        graph_bytes=graph_bytes,
        garbage_bytes=garbage_bytes,
        collecting=collecting,
    )


# Memory of CUDA graphs. What a step allocated while it was captured belongs to a pool
# that no other tensor may use, and each replay uses it again without asking the
# allocator. So it is in no peak of a replay, and all of the pool is counted.

Pool = tuple[int, int]
"""How torch names a pool of memory."""


@contextmanager
def _replayed_pools(cuda: Any) -> Iterator[set[Pool]]:
    """Note the pool of each graph that is replayed inside the context."""
    # The class of C++, as a step may have kept ``graph.replay`` from before.
    graph = cuda.CUDAGraph.__base__
    replay = graph.replay
    pools: set[Pool] = set()

    @wraps(replay)
    def replay_and_note(self: Any) -> object:
        result = replay(self)
        pools.add(tuple(self.pool()))
        return result

    graph.replay = replay_and_note
    try:
        yield pools
    finally:
        graph.replay = replay


def _idle_bytes(cuda: Any, pools: Collection[Pool]) -> int:
    """Return what *pools* have on this GPU beyond the tensors that peaks count."""
    here = cuda.current_device()
    return sum(
        int(segment["total_size"]) - int(segment["allocated_size"])
        for segment in cuda.memory_snapshot()
        if segment["device"] == here and tuple(segment["segment_pool_id"]) in pools
    )


def _with_graphs(peaks: Mapping[str, int], graph_bytes: int) -> dict[str, int]:
    """Add the bytes of graphs to *peaks*; the reserved ones have them already."""
    return {
        name: peak + (0 if name == PEAK_RESERVED.name else graph_bytes)
        for name, peak in peaks.items()
    }


def blocks_in_use(cuda: Any) -> dict[int, int]:
    """Return the bytes of every block that *cuda*'s allocator has lent, by its address."""
    return {
        int(block["address"]): int(block["size"])
        for segment in cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == IN_USE
    }


@contextmanager
def _peaks_before_resets(torch: Any) -> Iterator[Sequence[Mapping[str, int]]]:
    """Read the peaks before each reset inside the step: they count for it, too."""
    # A step may reset the peaks itself, to log them. Every public function ends in one
    # of these two of ``torch._C``, so patching them catches names imported before as
    # well.
    peaks: list[Mapping[str, int]] = []
    real = {name: getattr(torch._C, name) for name in RESETS if hasattr(torch._C, name)}  # noqa: SLF001

    def reading_first(reset: Callable[..., object]) -> Callable[..., object]:
        def read_and_reset(*arguments: object) -> object:
            peaks.append(_peaks_in(torch.cuda.memory_stats()))
            return reset(*arguments)

        return read_and_reset

    for name, reset in real.items():
        setattr(torch._C, name, reading_first(reset))  # noqa: SLF001
    try:
        yield peaks
    finally:
        for name, reset in real.items():
            setattr(torch._C, name, reset)  # noqa: SLF001


def _peaks_in(stats: Mapping[str, int]) -> dict[str, int]:
    return {metric: int(stats[key]) for metric, key in PEAK_FIELDS.items()}


def _largest(peaks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: max(peak[name] for peak in peaks) for name in PEAK_FIELDS}


def record_allocations(
    torch: Any, step: Step, arguments: Sequence[object], path: Path
) -> None:
    """Run one step and pickle what the allocator did, with the lines that asked it.

    The format is that of ``torch.cuda.memory._dump_snapshot``, for torch's own viewer.
    """
    memory = torch.cuda.memory
    gc.collect()
    wait_for_gpus(torch)
    memory._record_memory_history(  # noqa: SLF001, there is no public one
        "all", context="alloc", stacks="python", max_entries=MOST_ALLOCATOR_EVENTS
    )
    try:
        step(*arguments)
        wait_for_gpus(torch)
        path.parent.mkdir(parents=True, exist_ok=True)
        memory._dump_snapshot(str(path))  # noqa: SLF001, there is no public one
    finally:
        # Always off again: recording slows every allocation down, and the next call in
        # this process is timed.
        memory._record_memory_history(None)  # noqa: SLF001


def out_of_memory_summary(error: BaseException) -> str | None:
    """Return what the allocator contained when *error* ran out of GPU memory.

    ``None`` for other errors, and if torch or CUDA was never used.
    """
    torch = sys.modules.get("torch")
    # The error is judged in any process: torch is looked up and never imported for it.
    if torch is None or not isinstance(error, torch.OutOfMemoryError):
        return None
    foreseen: str | None = getattr(error, FORESEEN, None)
    if foreseen is not None:
        return foreseen
    if not torch.cuda.is_initialized():
        return None
    return f"{torch.cuda.memory_summary(abbreviated=True)}"
