"""Answers of ``torch.cuda`` and ``torch.accelerator`` about the simulated GPU."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch.autograd import profiler as autograd_profiler

from ...errors import ErrorId, StepError
from ...model.finding import FindingKind
from ..source_lines import torch_path
from . import streams
from .allocator import change_settings, settings_against_reserved
from .device_names import CUDA, cuda_tensor_types, index_of
from .memory import SIMULATED_MEMORY, DeviceMemory
from .patches import Patch
from .recorder import WATCH
from .recurrent import DROPOUT_STATES
from .specification import (
    CAPABILITY,
    CUDA_VERSION,
    CUDNN_VERSION,
    PROPERTIES,
    SIMULATED_NAME,
)


def _always(answer: Any) -> Callable[..., Any]:
    """Make a function that takes anything and returns *answer*."""

    def answered(*_: object, **__: object) -> Any:
        return answer

    return answered


# Answers of ``torch.cuda`` about memory, taken from the simulated allocator.


def _about(answer: Callable[[], Any]) -> Callable[..., Any]:
    """Make a function of a *device* that returns *answer*, if that is one."""

    def answered(device: Any = None) -> Any:
        index_of(device)
        return answer()

    return answered


def _device() -> DeviceMemory:
    """Return the memory of the device; an empty one while nobody watches it."""
    return (
        DeviceMemory()
        if SIMULATED_MEMORY.live is None
        else SIMULATED_MEMORY.live.device
    )


def _reset_peak() -> None:
    if SIMULATED_MEMORY.live is not None:
        SIMULATED_MEMORY.live.reset_peak()


def empty_cache() -> None:
    """``torch.cuda.empty_cache``: what is cached goes back to the device."""
    live = SIMULATED_MEMORY.live
    frees = live is not None and live.empty_cache()
    is_known = frees and settings_against_reserved(os.environ) is None
    WATCH.synced(
        FindingKind.SYNC if is_known else FindingKind.INCONCLUSIVE,
        "torch.cuda.empty_cache",
        f"cudaFree waits for the device{'' if is_known else ', if blocks are cached'}, "
        "and the next step takes them from the driver again",
    )


def _memory_info() -> tuple[int, int]:
    """``torch.cuda.mem_get_info``: all of it is free but what is reserved."""
    total = SIMULATED_MEMORY.room.total_bytes
    return max(0, total - _device().allocator.reserved.now), total


def nested(statistics: dict[str, int]) -> dict[str, Any]:
    """Put *statistics* into dictionaries, by the dots in their names."""
    found: dict[str, Any] = defaultdict(lambda: defaultdict(Counter))
    for name, value in statistics.items():
        *pool, last = name.split(".")
        (found[pool[0]][pool[1]] if pool else found)[last] = value
    return found


def set_fraction(fraction: float, device: Any = None) -> None:
    """``torch.cuda.set_per_process_memory_fraction``."""
    index_of(device)
    if not 0 <= fraction <= 1:
        msg = f"Invalid fraction value: {fraction}. Allowed range: 0~1"
        raise ValueError(msg)
    SIMULATED_MEMORY.let_take(fraction)


_now_reserved = _about(lambda: _device().allocator.reserved.now)
_most_reserved = _about(lambda: _device().allocator.reserved.peak)
_forget_peak = _about(_reset_peak)

MEMORY_ANSWERS = {
    "empty_cache": empty_cache,
    "get_per_process_memory_fraction": _about(lambda: SIMULATED_MEMORY.share),
    "max_memory_allocated": _about(lambda: _device().allocator.allocated.peak),
    "max_memory_cached": _most_reserved,
    "max_memory_reserved": _most_reserved,
    "mem_get_info": _about(_memory_info),
    "memory_allocated": _about(lambda: _device().allocator.allocated.now),
    "memory_cached": _now_reserved,
    "memory_reserved": _now_reserved,
    # All pools together, and 0 for each of them.
    "memory_stats": _about(lambda: defaultdict(int, _device().statistics())),
    "memory_stats_as_nested_dict": _about(lambda: nested(_device().statistics())),
    "reset_accumulated_memory_stats": _about(lambda: _device().reset_sums()),
    "reset_max_memory_allocated": _forget_peak,
    "reset_max_memory_cached": _forget_peak,
    "reset_peak_memory_stats": _forget_peak,
    "set_per_process_memory_fraction": set_fraction,
}


TRUE: Final = tuple(
    "is_available is_initialized is_bf16_supported is_tf32_supported "
    "_is_compiled".split()
)
ZEROS: Final = tuple(
    "current_device utilization memory_usage temperature power_draw "
    "clock_rate device_memory_used initial_seed _exchange_device "
    "_maybe_exchange_device _get_device".split()
)
NOTHINGS: Final = tuple(
    "_lazy_call _record_memory_history init ipc_collect "
    "reset_accumulated_host_memory_stats reset_peak_host_memory_stats "
    "set_sync_debug_mode".split()
)
MODULES: Final = ("memory", "random", "streams", "graphs", "_utils")
"""Modules below ``torch.cuda`` with functions that ``torch.cuda`` re-exports."""


def lazy_init() -> None:
    """``torch.cuda._lazy_init``, which torch's core calls once to start real CUDA.

    The core calls it for a function that was saved before the patches were made. Raises
    ``StepError``, or the core would take CUDA for initialised for ever after.
    """
    __tracebackhide__ = True
    # Only the caller's file tells torch's Python code, for which nothing is to be done,
    # from the user's call into the core. C++ has no frame of its own.
    if torch_path(sys._getframe(1)) is not None:  # noqa: SLF001
        return
    msg = (
        "a function of torch that was saved before the simulated GPU was entered "
        'asked for device="cuda": call it by its name in torch, or enter earlier'
    )
    raise StepError(msg, ErrorId.GP306)


class NoProfiler:
    """A library with marks and calls for a profiler that is not there."""

    cudaError = type("cudaError", (int,), {"success": 0})  # noqa: N815, the library's
    cudaGetErrorString = staticmethod(_always("no error"))  # noqa: N815
    cudaMemGetInfo = staticmethod(_about(_memory_info))  # noqa: N815

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a call that succeeds."""
        return _always(0)


NO_PROFILER: Final = NoProfiler()
"""``torch.cuda.nvtx`` calls it, and ``torch.cuda.cudart()`` returns it."""

# Profilers: they record the host alone, as there is no GPU to record.

_activities = torch._C._autograd._supported_activities  # noqa: SLF001, asked by torch.profiler


def activities() -> set[Any]:
    """``torch.profiler.supported_activities``."""
    return {*_activities(), autograd_profiler.ProfilerActivity.CUDA}


def _recording_the_host(begin: Callable[..., None]) -> Callable[..., None]:
    """Make a profiler of torch leave out the events of CUDA that no stream would take.

    torch takes them where Kineto cannot record GPUs, and warns of each that failed.
    """

    @functools.wraps(begin)
    def begun(profiler: Any, *args: Any, **options: Any) -> None:
        begin(profiler, *args, **options)
        states = autograd_profiler.ProfilerState
        if getattr(profiler, "profiler_kind", None) is states.KINETO_GPU_FALLBACK:
            profiler.profiler_kind = states.KINETO

    return begun


def _begin_marks(marks: Any) -> Any:
    """Begin ``torch.autograd.profiler.emit_nvtx``, which waits."""
    if marks.enabled:
        torch.cuda.synchronize()
    return marks


def _end_marks(marks: Any, *_: object) -> None:
    """End it, which waits again."""
    _begin_marks(marks)


def profiler_patches() -> Iterator[Patch]:
    """What looks for a GPU to record."""
    yield Patch(torch._C._autograd, "_supported_activities", activities)  # noqa: SLF001
    begin = autograd_profiler.profile.__init__
    yield Patch(autograd_profiler.profile, "__init__", _recording_the_host(begin))
    yield Patch(autograd_profiler.emit_nvtx, "__enter__", _begin_marks)
    yield Patch(autograd_profiler.emit_nvtx, "__exit__", _end_marks)


def _synchronize(name: str) -> Callable[..., Any]:
    return _about(
        lambda: WATCH.sync(f"torch.{name}.synchronize", "waits for the device")
    )


current_stream = _about(streams.current_stream)

SEEDS: Final = ("manual_seed", "manual_seed_all", "seed", "seed_all")
"""The device draws from the host's generator, so only cuDNN's own states are seeded."""

capability = _about(lambda: CAPABILITY)
"""``torch.cuda.get_device_capability``."""


def set_device(device: Any) -> None:
    """``torch.cuda.set_device``: to the first or to none, and only by its number."""
    index_of(device)
    if isinstance(device, str | torch.device) and torch.device(device).index is None:
        msg = f"Expected a torch.device with a specified index or an integer, but got:{device}"
        raise ValueError(msg)


def rng_state(device: Any = None) -> Any:  # noqa: ARG001, torch's
    """The state of the host's generator, from which GPU tensors draw."""
    return torch.get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:  # noqa: ARG001, torch's
    """Set it."""
    torch.set_rng_state(new_state)
    DROPOUT_STATES.seed()


def answers() -> dict[str, Any]:
    """What each name in ``torch.cuda`` is while simulating."""
    found: dict[str, Any] = {
        "can_device_access_peer": _always(False),  # noqa: FBT003
        "is_current_stream_capturing": streams.is_capturing,
        "_is_in_bad_fork": _always(False),  # noqa: FBT003
        "device_count": _always(1),
        "_initialized": True,
        "_lazy_init": lazy_init,
        "_cudart": NO_PROFILER,
        "synchronize": _synchronize("cuda"),
        "current_stream": current_stream,
        "default_stream": _about(streams.numbered),
        "set_stream": streams.set_stream,
        "get_device_properties": _about(lambda: PROPERTIES),
        "get_device_name": _about(lambda: SIMULATED_NAME),
        "get_device_capability": capability,
        "get_arch_list": _always(["sm_90"]),
        "get_sync_debug_mode": _always(0),
        "set_device": set_device,
        "get_rng_state": rng_state,
        "get_rng_state_all": lambda: [rng_state()],
        "set_rng_state": set_rng_state,
        "set_rng_state_all": lambda new_states: [*map(set_rng_state, new_states)],
        "host_memory_stats": _always(defaultdict(int)),
        "host_memory_stats_as_nested_dict": lambda: defaultdict(Counter),
        "memory_snapshot": _always([]),
        "_snapshot": lambda *_, **__: {"segments": [], "device_traces": [[]]},
        "list_gpu_processes": _always("the simulated GPU runs no processes"),
        "Stream": streams.Stream,
        "ExternalStream": streams.Stream,
        "get_stream_from_external": streams.Stream,
        "Event": streams.Event,
        "StreamContext": streams.StreamContext,
        "stream": streams.StreamContext,
        "device": streams.DeviceContext,
        "device_of": streams.DeviceOfContext,
        "CUDAGraph": streams.CUDAGraph,
        "MemPool": streams.MemPool,
        "graph": streams.GraphContext,
        "graph_pool_handle": streams.new_pool,
    }
    # One function for each name: dynamo has rules for functions, by their identity.
    found.update({name: _always(True) for name in TRUE})  # noqa: FBT003, the answer
    found.update({name: _always(0) for name in ZEROS})
    found.update({name: _always(None) for name in NOTHINGS})
    found.update({name: lambda *_, **__: DROPOUT_STATES.seed() for name in SEEDS})
    found.update(MEMORY_ANSWERS)
    found.update(cuda_tensor_types())
    return found


def query_patches() -> Iterator[Patch]:
    """``torch.cuda``, the modules below it, ``torch.accelerator`` and the backends."""
    yield from profiler_patches()
    mine = answers()
    for module in (torch.cuda, *(getattr(torch.cuda, name) for name in MODULES)):
        for name, value in mine.items():
            # torch re-exports the same function from several modules, and not every
            # release has every name.
            if name in vars(module):
                yield Patch(module, name, value)
    yield from _accelerator(mine)
    core = torch._C  # noqa: SLF001
    yield Patch(core, "__getattr__", missing_in_core)
    if hasattr(core, SET_SETTINGS):
        yield Patch(core, SET_SETTINGS, change_settings)
    # FSDP puts its default mesh there.
    yield Patch(core, "_get_accelerator", _always(torch.device(CUDA.type)))
    # A build with CUDA has them, and some end the process where there is no driver.
    for name in filter(_is_of_cuda, list(vars(core))):
        yield Patch(core, name, answer_of_core(name))
    yield Patch(torch.backends.cuda, "is_built", _always(True))  # noqa: FBT003
    cudnn = torch.backends.cudnn
    yield Patch(cudnn, "is_available", _always(True))  # noqa: FBT003
    yield Patch(cudnn, "version", _always(CUDNN_VERSION))
    yield Patch(torch.cuda.nvtx, "_nvtx", NO_PROFILER)
    yield Patch(torch, "Stream", streams.Stream)
    yield Patch(torch, "Event", streams.Event)
    # A build with CUDA keeps its own version.
    if torch.version.cuda is None:
        yield Patch(torch.version, "cuda", CUDA_VERSION)


SET_SETTINGS: Final = "_accelerator_setAllocatorSettings"

OF_CUDA: Final = tuple(
    "_broadcast_out _cslt_ _gather_out _host_emptyCache _scatter_out _cuda_ "
    "_cudart _nccl_ _nvtx _set_cached_tensors_enabled".split()
)
"""Starts of the names in torch's core that only a build with CUDA has."""

CONSTANTS: Final[dict[str, Any]] = {
    f"_cuda_{name}": value
    for value, names in (
        (0, "exchangeDevice getCurrentBlasHandle getCurrentSolverHandle getDevice"),
        (
            0,
            "get_sync_debug_mode maybeExchangeDevice tunableop_get_rotating_buffer_size",
        ),
        (False, "canDeviceAccessPeer isHistoryEnabled isInBadFork tunableop_read_file"),
        (False, "record_untuned_is_enabled tunableop_is_enabled"),
        (True, "cudaCachingAllocator_is_enabled get_conv_benchmark_empty_cache"),
        (True, "hasPrimaryContext tunableop_tuning_is_enabled"),
        ("", "getMemoryMetadata tunableop_get_filename"),
        ((), "tunableop_get_results tunableop_get_validators"),
        (1, "getDeviceCount"),
        (10, "get_cudnn_benchmark_limit"),
        (30, "tunableop_get_max_tuning_duration"),
        (100, "tunableop_get_max_tuning_iterations"),
        (13000, "getCompiledVersion"),
        (2**20, "getCublasLtWorkspaceSize"),
        (2**25, "getCublasWorkspaceSize"),
        ((0, 0, 1), "getDefaultStream"),
        ("native", "getAllocatorBackend"),
        ("sm_90", "getArchFlags"),
        ({"segments": [], "device_traces": [[]]}, "memorySnapshot"),
    )
    for name in names.split()
}
"""What never changes, or what switches that do nothing here are at."""

DOES_NOTHING: Final = tuple(
    "_cuda_allocationTraceback _cuda_attach_ _cuda_checkPool _cuda_clear "
    "_cuda_cudaCachingAllocator_enable _cuda_getAllocator _cuda_getHip "
    "_cuda_init _cuda_ipc_ _cuda_record_ _cuda_reset _cuda_setCublas "
    "_cuda_setDevice _cuda_setMemoryM _cuda_set_ _cuda_sleep _cuda_tunableop_ "
    "_host_emptyCache _set_cached_tensors_enabled".split()
)
"""Starts of names of calls without an effect on syncs and memory.

Workspaces of cuBLAS stay: trainers clear them at their end, and the next product takes
them again.
"""

IN_CORE: Final[dict[str, Any]] = {
    **{name: _always(value) for name, value in CONSTANTS.items()},
    "_broadcast": lambda tensor, devices: [tensor for _ in devices],
    "_broadcast_coalesced": lambda tensors, devices, _: [tensors for _ in devices],
    "_CudaDeviceProperties": type(PROPERTIES),
    "_cuda_beginAllocateCurrentStreamToPool": streams.take_from_pool,
    "_cuda_beginAllocateCurrentThreadToPool": streams.take_from_pool,
    "_cuda_beginAllocateToPool": streams.take_from_pool,
    "_cuda_endAllocateToPool": streams.take_from_default_pool,
    "_cuda_cudaCachingAllocator_set_allocator_settings": change_settings,
    "_cuda_emptyCache": empty_cache,
    "_cuda_getCurrentRawStream": lambda _: streams.current_stream().cuda_stream,
    "_cuda_getCurrentStream": lambda _: (streams.current_stream().stream_id, 0, 1),
    "_cuda_getMemoryFraction": MEMORY_ANSWERS["get_per_process_memory_fraction"],
    "_cuda_hostMemoryStats": lambda: defaultdict(Counter),
    "_cuda_isCurrentStreamCapturing": streams.is_capturing,
    "_cuda_memoryStats": _about(lambda: nested(_device().statistics())),
    "_cuda_resetPeakMemoryStats": _forget_peak,
    "_cuda_setStream": lambda number, *_, **__: streams.set_stream(number),
    "_cuda_releasePool": streams.release_pool,
    "_cuda_setMemoryFraction": set_fraction,
    "_cuda_synchronize": _synchronize("cuda"),
    "_cudart": NO_PROFILER,
    "_gather": lambda tensors, dim, _: torch.cat(tensors, dim or 0),
    "_nccl_unique_id": lambda: bytes(128),
    "_nccl_version": lambda: (2 << 32) + (28 << 16) + 9,
    "_nccl_version_suffix": bytes,
    "_nvtx": NO_PROFILER,
    "_scatter": lambda tensor, devices, _sizes, dim, _: tensor.chunk(len(devices), dim),
}
"""Those that are answered."""


UNDECLARED: Final = (
    "_cuda_attach_out_of_memory_observer _cuda_hasPrimaryContext _cuda_isInBadFork _cudart _nvtx "
    "_cuda_record_untuned_enable _cuda_record_untuned_is_enabled "
    "_cuda_tunableop_get_rotating_buffer_size"
)
"""Names that torch's stub of its core leaves out; it misspells the last one."""


@functools.cache
def names_of_cuda() -> frozenset[str]:
    """Names in torch's core that only a build with CUDA has, by this torch's own stub."""
    stub = Path(torch.__file__).with_name("_C") / "__init__.pyi"
    if not stub.is_file():
        return frozenset()
    declared = re.findall(
        r"^(?:def |class )?(_\w+)", stub.read_text("utf-8"), re.MULTILINE
    )
    wanted = {*filter(_is_of_cuda, declared), *UNDECLARED.split()}
    return frozenset(wanted - {"_cuda_tunableop_get_rotation_buffer_size"})


def _is_of_cuda(name: str) -> bool:
    return name in IN_CORE or name.startswith(OF_CUDA)


def missing_in_core(name: str) -> Any:
    """``torch._C.name`` in a build without CUDA, if one with CUDA has it."""
    names = names_of_cuda()
    # An installation without stubs has no list.
    if not (name in names if names else _is_of_cuda(name)):
        msg = f"module 'torch._C' has no attribute {name!r}"
        raise AttributeError(msg)
    return answer_of_core(name)


def answer_of_core(name: str) -> Any:
    """``torch._C.name``, which only a build with CUDA has."""
    if name in IN_CORE:
        return IN_CORE[name]
    if name.startswith(DOES_NOTHING):
        return _always(None)

    def unanswered(*_: object, **__: object) -> int:
        WATCH.leave_unchecked(f"torch._C.{name}", "only a GPU can answer it")
        return 0

    return unanswered


def _accelerator(mine: dict[str, Any]) -> Iterator[Patch]:
    same = {
        name: mine[name] for name in ("is_available", "device_count", "empty_cache")
    }
    own = {
        "current_accelerator": _always(torch.device(CUDA.type)),
        "current_device_idx": _always(0),
        "current_device_index": _always(0),
        "empty_host_cache": _always(None),
        "Graph": streams.CUDAGraph,
        "current_stream": current_stream,
        "get_device_capability": capability,
        "get_memory_info": mine["mem_get_info"],
        "set_device_idx": set_device,
        "set_device_index": set_device,
        "set_stream": streams.set_stream,
        "synchronize": _synchronize("accelerator"),
    }
    memory = {n: v for n, v in mine.items() if "memory" in n}
    for name, value in {**memory, **same, **own}.items():
        if name in vars(torch.accelerator):
            yield Patch(torch.accelerator, name, value)
