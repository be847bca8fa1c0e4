"""Streams, events and graphs of a device that does everything at once."""

from __future__ import annotations

import itertools
from typing import Any
from typing import Final

import torch

from .device_names import CUDA
from .memory import PRETEND_MEMORY
from .recorder import WATCH


POOL: Final = 32
"""So many streams torch makes, and then gives them out again."""

CAPTURING: Final = POOL + 1
"""The number of the stream on which graphs are captured."""

_made = itertools.cycle(range(1, POOL + 1))


class _Aside:
    """Notes whether memory is taken while a non-default stream is current."""

    stream: Any
    _events: int | None = None
    _outer = 0

    def _begin(self) -> None:
        live = PRETEND_MEMORY.live
        if live is None:
            return
        self._outer = live.stream
        live.stream = getattr(self.stream, "number", live.stream)
        self._events = len(live.events) if 0 < live.stream <= POOL else None

    def _end(self) -> None:
        live = PRETEND_MEMORY.live
        if live is None:
            return
        live.stream = self._outer
        if self._events not in {None, len(live.events)}:
            # Blocks of one stream are not reused by another, which the simulated
            # allocator does not know.
            live.several_streams = True


class Stream(_Aside):
    """``torch.cuda.Stream``: one queue, always empty.

    One that is made is not the default one, whose ``number`` is 0.
    """

    cuda_stream = stream_id = device_index = 0
    device_type = 1
    device = CUDA
    priority = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        self.stream = self
        self.number = next(_made)

    def synchronize(self) -> None:
        """Wait, which a GPU's host would do."""
        WATCH.sync("torch.cuda.Stream.synchronize", "waits for the stream")

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    def is_capturing(self) -> bool:
        """Graphs are not captured."""
        return False

    def wait_stream(self, stream: object) -> None:
        """Order streams on the device: no wait for the host."""

    def wait_event(self, event: object) -> None:
        """Order streams on the device: no wait for the host."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event."""
        return event or Event()

    def __enter__(self) -> Stream:  # noqa: PYI034, Self is younger than Python 3.10
        """Make it the current stream."""
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        self._end()

    def __eq__(self, other: object) -> bool:
        """There is one stream."""
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        """There is one stream."""
        return hash(Stream)


class Event:
    """``torch.cuda.Event``: has happened as soon as it is recorded."""

    device = CUDA
    cuda_event = event_id = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""

    def record(self, stream: object = None) -> None:
        """Enqueue: no wait for the host."""

    def wait(self, stream: object = None) -> None:
        """Order streams on the device: no wait for the host."""

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


def default_stream() -> Stream:
    """Return the stream that is current where no other is."""
    stream = Stream.__new__(Stream)
    stream.stream, stream.number = stream, 0
    return stream


class StreamContext(_Aside):
    """``torch.cuda.stream`` as a context."""

    def __init__(self, stream: Any = None) -> None:
        """Take the stream."""
        self.stream = stream

    def __enter__(self) -> None:
        """Nothing changes: there is one of each."""
        self._begin()

    def __exit__(self, *_: object) -> None:
        """Nothing changed."""
        self._end()


class DeviceContext(StreamContext):
    """``torch.cuda.device`` as a context."""

    def __init__(self, device: Any) -> None:
        """Take the device: there is one."""
        super().__init__(device)
        self.idx = 0
        self.prev_idx = 0


class DeviceOfContext(DeviceContext):
    """``torch.cuda.device_of`` as a context."""

    def __init__(self, obj: Any) -> None:
        """Take a tensor or a storage."""
        super().__init__(obj)


GRAPH_REASON = "a CUDA graph replays work that no operation shows"


class CUDAGraph:
    """``torch.cuda.CUDAGraph``: captured work runs once, as it is captured."""

    number = CAPTURING

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        WATCH.leave_unjudged("torch.cuda.CUDAGraph", GRAPH_REASON)

    def capture_begin(self, *_: object, **__: object) -> None:
        """Run what follows at once."""

    def capture_end(self) -> None:
        """Nothing was captured."""

    def replay(self) -> None:
        """Do nothing, unjudged."""
        WATCH.leave_unjudged("torch.cuda.CUDAGraph.replay", GRAPH_REASON)

    def reset(self) -> None:
        """There is nothing to free."""

    def pool(self) -> tuple[int, int]:
        """Return some handle."""
        return (0, 0)


class GraphContext(StreamContext):
    """``torch.cuda.graph``."""

    def __init__(self, cuda_graph: Any, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        super().__init__(cuda_graph)

    def __enter__(self) -> None:
        """Begin the capture, as torch does: on a device that is done and has no cache."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        super().__enter__()
        self.stream.capture_begin()

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.stream.capture_end()
        super().__exit__(*error)


class MemPool:
    """``torch.cuda.MemPool``: its memory is taken from the one pool there is."""

    id = (0, 1)
    allocator = None

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever torch's takes."""
        WATCH.leave_unjudged("torch.cuda.MemPool", "there is one pool of memory")

    def use_count(self) -> int:
        """Only the program uses it."""
        return 1

    def snapshot(self) -> list[object]:
        """Nothing is in it."""
        return []


def make_graphed_callables(callables: Any, *_: object, **__: object) -> Any:
    """Return *callables* as they are, unjudged."""
    WATCH.leave_unjudged("torch.cuda.make_graphed_callables", GRAPH_REASON)
    return callables
