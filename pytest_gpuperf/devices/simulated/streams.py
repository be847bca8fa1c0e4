"""Streams, events and graphs of a device that does everything at once."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from typing import Any, Final

import torch

from .device_names import CUDA
from .memory import SIMULATED_MEMORY
from .recorder import WATCH


POOL: Final = 32
"""So many streams torch makes, and then gives them out again."""

CAPTURING: Final = POOL + 1
"""The number of the stream on which graphs are captured."""

_made = itertools.cycle(range(1, POOL + 1))


def set_stream(stream: Any) -> None:
    """``torch.cuda.set_stream``."""
    number = getattr(stream, "number", stream)
    if isinstance(number, int):
        SIMULATED_MEMORY.origin = SIMULATED_MEMORY.origin._replace(stream=number)


def current_stream() -> Stream:
    """``torch.cuda.current_stream``."""
    return numbered(SIMULATED_MEMORY.origin.stream)


class _Aside:
    """Makes a stream the current one for a time."""

    stream: Any
    _outer: Stream

    def __enter__(self) -> Any:
        """Make it the current one."""
        self._outer = current_stream()
        set_stream(self.stream)
        return self

    def __exit__(self, *_: object) -> None:
        """Go back to the one before."""
        set_stream(self._outer)


class Stream(_Aside):
    """``torch.cuda.Stream``: one queue, always empty.

    One that is made is not the default one, whose ``number`` is 0.
    """

    number: int
    device_index = 0
    device_type = 1
    device = CUDA
    priority = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        self.stream = self
        self.number = next(_made)

    @property
    def stream_id(self) -> int:
        """Its number, which is no address."""
        return self.number

    cuda_stream = native_handle = stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return those of an H100."""
        return (0, -5)

    def synchronize(self) -> None:
        """Wait, which a GPU's host would do."""
        WATCH.sync("torch.cuda.Stream.synchronize", "waits for the stream")

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is captured on it."""
        return is_capturing() and self == current_stream()

    def wait_stream(self, stream: object) -> None:
        """Order streams on the device: the host does not wait."""

    def wait_event(self, event: object) -> None:
        """Order streams on the device: the host does not wait."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event."""
        return event or Event()

    def __eq__(self, other: object) -> bool:
        """Whether it is the same of the device's streams."""
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        """Hash its number."""
        return hash(self.number)


class Event:
    """``torch.cuda.Event``: has happened as soon as it is recorded."""

    device = CUDA
    cuda_event = event_id = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""

    def record(self, stream: object = None) -> None:
        """Enqueue: the host does not wait."""

    def wait(self, stream: object = None) -> None:
        """Order streams on the device: the host does not wait."""

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    def elapsed_time(self, end_event: object) -> float:  # noqa: ARG002, torch's
        """Return 0 ms: there is no device to time."""
        return 0.0

    def synchronize(self) -> None:
        """Wait, which a GPU's host would do."""
        WATCH.sync("torch.cuda.Event.synchronize", "waits for the event")

    def ipc_handle(self) -> bytes:
        """Refuse: other processes do not share the pretence."""
        msg = "CUDA IPC between processes is not part of the simulated GPU"
        raise RuntimeError(msg)


def numbered(number: int = 0) -> Stream:
    """Return the stream of *number*; 0 is the default one's."""
    stream = Stream.__new__(Stream)
    stream.stream, stream.number = stream, number
    return stream


def is_capturing() -> bool:
    """``torch.cuda.is_current_stream_capturing``."""
    return CAPTURED.pool > 0


class StreamContext(_Aside):
    """``torch.cuda.stream`` as a context."""

    def __init__(self, stream: Any = None) -> None:
        """Take the stream."""
        self.stream = stream


class DeviceContext(StreamContext):
    """``torch.cuda.device`` as a context."""

    def __init__(self, device: Any) -> None:  # noqa: ARG002, torch's
        """Take the device: there is one."""
        super().__init__()
        self.idx = 0
        self.prev_idx = 0


class DeviceOfContext(DeviceContext):
    """``torch.cuda.device_of`` as a context."""

    def __init__(self, obj: Any) -> None:
        """Take a tensor or a storage."""
        super().__init__(obj)


# Graphs, and pools of memory of their own.

GRAPH_REASON = "a CUDA graph replays work that no operation shows"

_pools = itertools.count(1)


class _Captured:
    """The pool of the graph that is captured, and how many users each pool has."""

    pool = 0

    def __init__(self) -> None:
        self.users: Counter[int] = Counter()

    def leave(self, pool: int) -> None:
        """Let one of its users leave *pool*, which may be the last."""
        self.users[pool] -= 1
        if not self.users[pool] and SIMULATED_MEMORY.live is not None:
            SIMULATED_MEMORY.live.drop_pool(pool)


CAPTURED: Final = _Captured()


def take_from_pool(_: object, pool: tuple[int, int]) -> None:
    """``torch._C._cuda_beginAllocateCurrentThreadToPool``."""
    CAPTURED.users[pool[1]] += 1
    SIMULATED_MEMORY.origin = SIMULATED_MEMORY.origin._replace(pool=pool[1])


def take_from_default_pool(*_: object) -> None:
    """``torch._C._cuda_endAllocateToPool``."""
    SIMULATED_MEMORY.origin = SIMULATED_MEMORY.origin._replace(pool=0)


def release_pool(_: object, pool: tuple[int, int]) -> None:
    """``torch._C._cuda_releasePool``."""
    CAPTURED.leave(pool[1])


def new_pool() -> tuple[int, int]:
    """``torch.cuda.graph_pool_handle``."""
    return (0, next(_pools))


class CUDAGraph:
    """``torch.cuda.CUDAGraph``: captured work runs once, as it is captured."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        WATCH.leave_uncounted("torch.cuda.CUDAGraph", GRAPH_REASON)
        self._pool = (0, 0)

    def capture_begin(self, pool: Any = None, **_: object) -> None:
        """Run what follows at once, with memory of *pool* or of one of its own."""
        self._pool = pool or new_pool()
        stream, live = SIMULATED_MEMORY.origin.stream, SIMULATED_MEMORY.live
        # The seed and the offset that a graph reads (CUDAGeneratorImpl.cpp).
        set_stream(0)
        states = live.take((8, 8)) if live is not None else ()
        set_stream(stream)
        CAPTURED.pool = self._pool[1]
        take_from_pool(None, self._pool)
        self._end = weakref.finalize(self, _end_graph, self._pool, stream, live, states)

    def capture_end(self) -> None:
        """Take memory as before."""
        CAPTURED.pool = 0
        take_from_default_pool()

    def replay(self) -> None:
        """Do nothing, unchecked."""
        WATCH.leave_uncounted("torch.cuda.CUDAGraph.replay", GRAPH_REASON)

    def instantiate(self, *_: object, **__: object) -> None:
        """Do nothing: there is no graph that could be asked for or written to a file."""

    debug_dump = enable_debug_mode = register_generator_state = instantiate
    raw_cuda_graph = raw_cuda_graph_exec = get_graph_data = instantiate

    def reset(self) -> None:
        """Leave the pool."""
        self._end()

    def pool(self) -> tuple[int, int]:
        """Return the pool that its memory is from."""
        return self._pool


def _end_graph(pool: tuple[int, int], stream: int, live: Any, states: Any) -> None:
    """Give back what a graph has taken, in the memory that was watched then."""
    watched = SIMULATED_MEMORY.live
    if watched is not None and watched is live:
        watched.give_back(states)
        watched.drop_workspaces(stream)
    CAPTURED.leave(pool[1])


class GraphContext(StreamContext):
    """``torch.cuda.graph``."""

    def __init__(
        self, cuda_graph: Any, pool: Any = None, stream: Any = None, **_: object
    ) -> None:
        """Take whatever torch's takes."""
        super().__init__(stream or numbered(CAPTURING))
        self.cuda_graph, self.pool = cuda_graph, pool

    def __enter__(self) -> None:
        """Begin the capture, as torch does: on a device that is done and has no cache."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        super().__enter__()
        self.cuda_graph.capture_begin(pool=self.pool)

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.cuda_graph.capture_end()
        super().__exit__(*error)


class MemPool:
    """``torch.cuda.MemPool``: memory that nothing outside of it uses."""

    allocator = None

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        self.id = new_pool()
        CAPTURED.users[self.id[1]] += 1
        weakref.finalize(self, _end_pool, self.id[1])

    def use_count(self) -> int:
        """Return how many use it, itself among them."""
        return CAPTURED.users[self.id[1]]

    def snapshot(self, *_: object, **__: object) -> list[object]:
        """Nothing is known of its blocks."""
        return []


def _end_pool(pool: int) -> None:
    CAPTURED.leave(pool)
    if SIMULATED_MEMORY.live is not None:
        SIMULATED_MEMORY.live.empty_cache(retry=True)
