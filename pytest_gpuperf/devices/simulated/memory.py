"""Live memory of the simulated GPU: every storage of a GPU tensor, from first to last.

Without a watch it costs one look at ``SIMULATED_MEMORY.live`` per operation. Storages are
followed by weak references: views, tied weights and ``set_`` share one. What a kernel
takes and gives back inside one operation comes from ``temporaries``.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..cuda.memory import FORESEEN
from ..memory_owners import current_node
from ..source_lines import Site
from .allocator import (
    DEFAULT,
    MIB,
    BlockOrigin,
    CachingAllocator,
    read_settings,
    rounded,
    settings_made,
)
from .operation import AtOutput
from .specification import PROPERTIES


# The memory of the simulated GPU as its allocator sees it while a step runs.

GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRoom:
    """What a device has, and what of it this process may take."""

    total_bytes: int
    allowed_bytes: int


class DeviceMemory:
    """An allocator at work on a device with *room*, or without end.

    ``retries`` counts how often its cache was emptied because the device had no more,
    ``failures`` how often that did not help.
    """

    def __init__(self, room: DeviceRoom | None = None) -> None:
        self.allocator = CachingAllocator()
        self.room = room
        self.retries = 0
        self.failures = 0

    def has_room(self, nbytes: int, origin: BlockOrigin) -> bool:
        """Whether a block of *nbytes* can be had without emptying the cache."""
        room = self.room
        return room is None or self.allocator.fits(nbytes, room.allowed_bytes, origin)

    def take(self, number: int, nbytes: int, origin: BlockOrigin) -> None:
        """Give *number* a block, or raise ``torch.OutOfMemoryError``."""
        __tracebackhide__ = True
        if self.room is not None and not self.has_room(nbytes, origin):
            self.failures += 1
            raise self._out_of_memory(nbytes, self.room)
        self.allocator.allocate(number, nbytes, origin)

    def give_back(self, number: int) -> None:
        """Take back the block of *number*."""
        self.allocator.free(number)

    def empty_cache(self, *, retry: bool) -> bool:
        """Give cached segments back to the device; return if there were any."""
        self.retries += retry
        return self.allocator.empty_cache()

    def reset_sums(self) -> None:
        """Count from now on what comes and goes."""
        self.retries = self.failures = 0
        for gauge in self.allocator.gauges:
            gauge.reset_sums()

    def statistics(self) -> dict[str, int]:
        """What ``torch.cuda.memory_stats`` says of all pools together."""
        allocator = self.allocator
        found = {
            "num_alloc_retries": self.retries,
            "num_ooms": self.failures,
            "num_device_alloc": allocator.segments.come,
            "num_device_free": allocator.segments.gone,
        }
        for name, gauge in {
            "allocated_bytes": allocator.allocated,
            "active_bytes": allocator.allocated,
            "requested_bytes": allocator.requested,
            "reserved_bytes": allocator.reserved,
            "inactive_split_bytes": allocator.split,
            "allocation": allocator.blocks,
            "active": allocator.blocks,
            "segment": allocator.segments,
            "inactive_split": allocator.split_blocks,
        }.items():
            found[f"{name}.all.current"] = gauge.now
            found[f"{name}.all.peak"] = gauge.peak
            found[f"{name}.all.allocated"] = gauge.come
            found[f"{name}.all.freed"] = gauge.gone
        return found

    def _out_of_memory(self, nbytes: int, room: DeviceRoom) -> Exception:
        """Build torch's own error, with a sentence that it is a prediction."""
        allocated, reserved = self.allocator.allocated.now, self.allocator.reserved.now
        allowed = ""
        if room.allowed_bytes < room.total_bytes:
            allowed = f"{_size(room.allowed_bytes)} allowed; "
        msg = (
            f"CUDA out of memory. Tried to allocate {_size(nbytes)}. GPU 0 has a total "
            f"capacity of {_size(room.total_bytes)} of which "
            f"{_size(room.total_bytes - reserved)} is free. {allowed}Of the allocated "
            f"memory {_size(allocated)} is allocated by PyTorch, and "
            f"{_size(reserved - allocated)} is reserved by PyTorch but unallocated. "
            "This is gpuperf's prediction for its simulated GPU: no real GPU ran out."
        )
        error: Exception = torch.OutOfMemoryError(msg)
        setattr(error, FORESEEN, torch.cuda.memory_summary(abbreviated=True))
        return error


def _size(nbytes: int) -> str:
    """Write as torch's message does (``format_size`` in CUDACachingAllocator.cpp)."""
    if nbytes <= 1024:  # noqa: PLR2004, a KiB
        return f"{nbytes} bytes"
    if nbytes <= MIB:
        return f"{nbytes / 1024:.2f} KiB"
    return f"{nbytes / GIB:.2f} GiB" if nbytes > GIB else f"{nbytes / MIB:.2f} MiB"


MATRIX_PRODUCTS: Final = frozenset(
    "_euclidean_dist _addmm_activation _native_multi_head_attention "
    "_scaled_mm _scaled_mm_v2 _transformer_encoder_layer_fwd addbmm addmm "
    "addmm_ addmv addmv_ baddbmm baddbmm_ bmm dot mm mv vdot".split()
)
"""Operations that cuBLAS runs, and that so need its workspace."""


class MemoryEvent(NamedTuple):
    """A storage is born, with ``nbytes``, or gone, with none; or the cache is emptied.

    Or, if ``nbytes`` is negative, a pool of graphs has ended, that of ``origin``.

    ``number`` is the storage's, or 0, ``op`` what ran at that moment. ``site`` is
    ``None`` if sites are not recorded. ``workspace`` says that the number is that of
    the cuBLAS workspace of the forward's thread, or of the backward's, ``retry`` that
    the device had no more to give before the cache was emptied.
    """

    number: int
    nbytes: int
    op: str
    site: Site | None = None
    workspace: bool = False
    retry: bool = False
    origin: BlockOrigin = DEFAULT

    @property
    def is_birth(self) -> bool:
        """Whether memory is taken, not given back."""
        return self.nbytes > 0

    @property
    def empties_cache(self) -> bool:
        """Whether it is about no storage."""
        return self.number == 0


class LiveMemory:
    """The storages alive, and the events since it began to look.

    ``now_bytes`` and ``peak_bytes`` are what ``torch.cuda.memory_allocated`` and
    ``max_memory_allocated`` would say: sizes rounded as the allocator rounds them.
    ``site`` returns the running line, or is ``None`` if sites are not recorded.
    ``made_at`` has the lines of the tensors alive, if they are.
    ``device`` gives the storages, as long as it has *room*. ``several_streams`` says that
    a stream used the memory of another, ``is_emptied`` that the code has emptied the cache, ``at_outputs``
    what the kernel that runs takes
    besides its outputs. ``whereabouts`` are the number of a program's step that runs, 0 if
    none is known, and that of the operations so far.
    """

    def __init__(
        self, *, workspace_bytes: int = 0, room: DeviceRoom | None = None
    ) -> None:
        self.device = DeviceMemory(room)
        self.events: list[MemoryEvent] = []
        self.op = ""
        self.whereabouts: list[int] | memoryview[int] = [0, 0]
        self.site: Callable[[], Site] | None = None
        self.now_bytes = 0
        self.peak_bytes = 0
        self.several_streams = False
        self.is_emptied = False
        self.unchecked: dict[tuple[str, str], None] = {}
        self.before_birth: Callable[[], None] | None = None
        self.on_birth: Callable[[int], None] | None = None
        self.at_outputs: Mapping[int, AtOutput] = {}
        self.made_at: MutableMapping[Any, Site] = WeakIdKeyDictionary()
        self._workspace_bytes = workspace_bytes
        self._workspaces: dict[tuple[bool, int], int] = {}
        self._storages: dict[int, tuple[int, int, Any]] = {}
        self._numbers = 0
        self._node: tuple[str, int] | None = None
        self._number_before_node = 0

    @property
    def is_compiled(self) -> bool:
        """Whether code runs as eager code here that a GPU would run fused."""
        return SIMULATED_MEMORY.is_compiled

    @property
    def workspace_bytes(self) -> int:
        """What cuBLAS keeps for itself, as allocated by now."""
        return len(self._workspaces) * rounded(self._workspace_bytes)

    @property
    def last_number(self) -> int:
        """Number of the storage that was born last."""
        return self._numbers

    def see(self, tensor: Any) -> None:
        """Count the storages behind *tensor*, the inside of a GPU tensor."""
        if tensor._is_zerotensor():  # noqa: SLF001
            return  # it has no memory
        if tensor.layout is torch.strided:
            self.see_storage(tensor.untyped_storage())
        elif tensor.layout is torch.sparse_coo:
            # Private, as the public names demand a coalesced tensor.
            self.see_storage(tensor._indices().untyped_storage())  # noqa: SLF001
            self.see_storage(tensor._values().untyped_storage())  # noqa: SLF001
        else:
            for part in _parts(tensor):
                self.see_storage(part.untyped_storage())

    def locate(self, tensor: Any) -> None:
        """Note the line that makes *tensor*, the inside of a GPU tensor: a view takes no memory."""
        if self.site is not None:
            self.made_at[tensor] = self.site()

    def see_storage(self, storage: Any) -> None:
        """Count *storage*, or the size it has got since."""
        # ``data_ptr()`` is the same for all empty storages.
        key = storage._cdata  # noqa: SLF001
        nbytes = storage.nbytes()
        known = self._storages.get(key)
        if known is not None:
            if known[1] != nbytes:
                self._resized(key, nbytes)
        elif nbytes:
            reference = weakref.ref(storage, partial(self._gone, key))
            self._storages[key] = (self._born(nbytes), nbytes, reference)

    def is_from_before(self, node: Any, tensor: Any) -> bool:
        """Whether the storage behind *tensor* is older than the run of *node*.

        *node* is autograd's that runs now.
        """
        self._follow(node)
        number = self.number_of(tensor)
        return number is not None and number <= self._number_before_node

    def is_made_by(self, node: Any, tensor: Any) -> bool:
        """Whether the run of *node*, autograd's that runs now, has taken its storage."""
        number = self.number_of(tensor)
        return number is not None and not self.is_from_before(node, tensor)

    def _follow(self, node: Any) -> None:
        # Not the node itself, which would keep its graph alive.
        name = None if node is None else (node.name(), node._sequence_nr())  # noqa: SLF001
        if name != self._node:
            self._node, self._number_before_node = name, self._numbers
            # Their formulas take more memory for tensor subclasses.
            if name is not None and name[0].startswith(("Cumprod", "Prod", "Renorm")):
                self.leave_unchecked(name[0], "CUDA computes it in another way")

    def begin(self, op: str, *, multiplies: bool) -> None:
        """Let *op* be what runs; a matrix product needs that of its thread and stream.

        Backward has a thread of its own.
        """
        self.op = op
        self.whereabouts[1] += 1
        node = current_node()
        self._follow(node)
        if multiplies:
            user = (node is not None, SIMULATED_MEMORY.origin.stream)
            if self._workspace_bytes and user not in self._workspaces:
                taken = self._born(self._workspace_bytes, workspace=True)
                self._workspaces[user] = taken

    def take(self, sizes: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Take what a kernel needs for itself; ``give_back`` wants the answer."""
        return [(self._born(nbytes), nbytes) for nbytes in sizes if nbytes]

    def give_back(self, taken: Sequence[tuple[int, int]]) -> None:
        """Take back what ``take`` gave."""
        for number, nbytes in taken:
            self._died(number, nbytes)

    def number_of(self, tensor: Any) -> int | None:
        """Return the number of the storage behind *tensor*, the inside of a GPU tensor."""
        if tensor.layout is not torch.strided:
            return None
        known = self._storages.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
        return known[0] if known is not None else None

    def leave_unchecked(self, op: str, reason: str) -> None:
        """Record that *op* ran and that nothing can be said about its memory."""
        self.unchecked[op, reason] = None

    def reset_peak(self) -> None:
        """``torch.cuda.reset_peak_memory_stats``."""
        self.peak_bytes = self.now_bytes
        self.device.allocator.reset_peaks()

    def empty_cache(self, *, retry: bool = False) -> bool:
        """``torch.cuda.empty_cache``, or what the allocator does before it gives up.

        Returns whether something was cached.
        """
        self.is_emptied = self.is_emptied or not retry
        self.events.append(MemoryEvent(0, 0, self.op, retry=retry))
        return self.device.empty_cache(retry=retry)

    def drop_workspaces(self, stream: int) -> None:
        """Give back what cuBLAS keeps for itself on *stream*."""
        for user in [user for user in self._workspaces if user[1] == stream]:
            self._died(self._workspaces.pop(user), self._workspace_bytes)

    def drop_pool(self, pool: int) -> None:
        """No graph uses *pool* any more."""
        self.events.append(MemoryEvent(0, -1, self.op, origin=BlockOrigin(pool)))
        self.device.allocator.drop_pool(pool)

    def _born(self, nbytes: int, *, workspace: bool = False) -> int:
        """Raise ``torch.OutOfMemoryError`` if the device is too small."""
        if not self._numbers:
            read_settings(os.environ)
        if self.before_birth is not None:
            self.before_birth()
        # As torch's allocator: before it gives up it empties its cache and tries once
        # more.
        origin = SIMULATED_MEMORY.origin
        if not self.device.has_room(nbytes, origin):
            self.empty_cache(retry=True)
        # It may raise, so the number counts and the event is written only after it.
        self.device.take(self._numbers + 1, nbytes, origin)
        self._numbers += 1
        site = self.site() if self.site is not None else None
        birth = (self._numbers, nbytes, self.op, site, workspace)
        self.events.append(MemoryEvent(*birth, origin=origin))
        self.now_bytes += rounded(nbytes)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        if self.on_birth is not None:
            self.on_birth(len(self.events) - 1)
        return self._numbers

    def _resized(self, key: int, nbytes: int) -> None:
        """Take the new block before the old one is given back, as CUDA copies over."""
        # The weak reference stays: the storage is the same one, and must not be
        # followed twice.
        number, before, reference = self._storages[key]
        if nbytes:
            self._storages[key] = (self._born(nbytes), nbytes, reference)
        else:
            del self._storages[key]
        self._died(number, before)

    def _gone(self, key: int, _: object) -> None:
        known = self._storages.pop(key, None)
        if known is not None:
            self._died(known[0], known[1])

    def _died(self, number: int, nbytes: int) -> None:
        self.device.give_back(number)
        self.events.append(MemoryEvent(number, 0, self.op))
        self.now_bytes -= rounded(nbytes)


def _parts(tensor: Any) -> Iterator[Any]:
    """Tensors that a compressed sparse one is made of."""
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


class MemoryWatch:
    """The watch on the memory of this process's one simulated GPU, if there is one.

    ``share`` is what the process may take of it, ``origin`` where blocks come from now, by
    the pool of a graph that is captured and the current stream. ``is_compiled`` says that code was to be
    compiled by a backend that fuses operations, and so has other peaks than here.
    """

    def __init__(self) -> None:
        self.live: LiveMemory | None = None
        self.share = 1.0
        self.is_compiled = False
        self.origin = DEFAULT

    @property
    def room(self) -> DeviceRoom:
        """What the device has, and what of it this process may take."""
        total = PROPERTIES.total_memory
        return DeviceRoom(total_bytes=total, allowed_bytes=int(total * self.share))

    def reset(self) -> None:
        """Begin anew, with no limit."""
        self.let_take(1.0)
        self.is_compiled = False
        self.origin = DEFAULT
        settings_made.clear()

    def let_take(self, share: float) -> None:
        """Let the process take *share* of the device from now on."""
        self.share = share
        if self.live is not None and self.live.device.room is not None:
            self.live.device.room = self.room

    def leave_unchecked(self, op: str, reason: str) -> None:
        """Record, if there is a watch, that nothing can be said about the memory of *op*."""
        if self.live is not None:
            self.live.leave_unchecked(op, reason)


SIMULATED_MEMORY: Final = MemoryWatch()


# The order in which a kernel takes memory and its results are born, where that matters.


@contextmanager
def taken(*sizes: int) -> Iterator[None]:
    """Take *sizes* from the device inside."""
    live = SIMULATED_MEMORY.live
    if live is None:
        yield
        return
    blocks = live.take(sizes)
    try:
        yield
    finally:
        live.give_back(blocks[::-1])


def seen(*tensors: Any) -> None:
    """Let *tensors* be born now; some may be ``None``."""
    if SIMULATED_MEMORY.live is not None:
        for tensor in tensors:
            if tensor is not None:
                SIMULATED_MEMORY.live.see(tensor)


@contextmanager
def watched(
    live: LiveMemory, is_gpu_tensor: Callable[[Any], bool] | None
) -> Iterator[LiveMemory]:
    """Let *live* see what *is_gpu_tensor* and alive now, and all that are made inside."""
    before = SIMULATED_MEMORY.live
    SIMULATED_MEMORY.live = live
    try:
        if is_gpu_tensor is not None:
            _see_all(live, is_gpu_tensor)
        yield live
    finally:
        SIMULATED_MEMORY.live = before


def _see_all(live: LiveMemory, is_gpu_tensor: Callable[[Any], bool]) -> None:
    """See what is alive, the largest first.

    In which order it was born is not known, and the order in which the collector lists
    it differs from process to process.
    """
    insides = [thing.inside for thing in gc.get_objects() if is_gpu_tensor(thing)]
    for inside in sorted(insides, key=nbytes_of, reverse=True):
        live.see(inside)


def nbytes_of(tensor: Any) -> int:
    """Return the size of the storage behind *tensor*, the inside of a GPU tensor."""
    if tensor.layout is torch.strided:
        nbytes: int = tensor.untyped_storage().nbytes()
        return nbytes
    return 0


# Replays the storages of a few steps through the simulated caching allocator.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Memory of one step, which starts at event ``first`` and ends before ``last``.

    At its peak, ``requested_bytes`` were asked for, ``allocated_bytes`` were in the blocks
    given for them, and ``reserved_bytes`` were taken from the device. ``end_bytes`` is
    what is allocated at the end. ``retries`` counts how often the
    cache was emptied because the device had no more. ``peak`` is the event at which
    most was allocated; ``None`` in a step that takes no memory.
    """

    first: int
    last: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    end_bytes: int
    allocations: int
    retries: int
    peak: int | None


def _follow(allocator: CachingAllocator, event: MemoryEvent) -> None:
    if event.nbytes < 0:
        allocator.drop_pool(event.origin.pool)
    elif event.empties_cache:
        allocator.empty_cache()
    elif event.is_birth:
        allocator.allocate(event.number, event.nbytes, event.origin)
    else:
        allocator.free(event.number)


def step_memories(
    events: Sequence[MemoryEvent], steps: Sequence[tuple[int, int]]
) -> tuple[StepMemory, ...]:
    """Simulate *events* from the first on and tell what each of *steps* needs.

    A step is the range of its events, and they are in order; events between them count
    towards what is alive.
    """
    allocator, done = CachingAllocator(), 0
    found: list[StepMemory] = []
    for first, last in steps:
        # Events between steps still change what is alive and cached when the next step
        # begins.
        for event in events[done:first]:
            _follow(allocator, event)
        found.append(_step(allocator, events, first, last))
        done = last
    return tuple(found)


def _step(
    allocator: CachingAllocator, events: Sequence[MemoryEvent], first: int, last: int
) -> StepMemory:
    allocator.reset_peaks()
    retries, births, peak = 0, 0, None
    for index in range(first, last):
        before = allocator.allocated.peak
        _follow(allocator, events[index])
        births += events[index].is_birth
        retries += events[index].retry
        if allocator.allocated.peak > before:
            peak = index
    return StepMemory(
        first=first,
        last=last,
        requested_bytes=allocator.requested.peak,
        allocated_bytes=allocator.allocated.peak,
        reserved_bytes=allocator.reserved.peak,
        end_bytes=allocator.allocated.now,
        allocations=births,
        retries=retries,
        peak=peak,
    )
