"""Which memory of the pretend GPU is alive: every storage of a ghost, from first to last.

While nobody watches it costs one look at ``MEMORY.live`` an operation. Storages are
followed by weak references: views, tied weights and ``set_`` share one, and what a
kernel takes and gives back inside one operation is not seen.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from typing import Final
from typing import NamedTuple

import torch

from .caching_allocator import rounded
from .device_memory import DeviceMemory
from .device_memory import Room
from .record import Site
from .recorder import current_node
from .specification import PROPERTIES


MATRIX_PRODUCTS: Final = frozenset(
    {
        "_addmm_activation",
        "_int_mm",
        "_scaled_mm",
        "addbmm",
        "addmm",
        "addmm_",
        "addmv",
        "addmv_",
        "baddbmm",
        "baddbmm_",
        "bmm",
        "dot",
        "mm",
        "mv",
        "vdot",
    }
)
"""Operations that cuBLAS runs, and that so need its workspace."""


class MemoryEvent(NamedTuple):
    """A storage is born, with ``nbytes``, or gone, with none; or the cache is emptied.

    ``number`` is the storage's, or 0, ``op`` what ran at that moment. ``site`` is
    ``None`` where sites are not recorded. ``workspace`` says that the number is that of
    the cuBLAS workspace of the forward's thread, or of the backward's, ``retry`` that
    the device had no more to give before the cache was emptied.
    """

    number: int
    nbytes: int
    op: str
    site: Site | None = None
    workspace: bool = False
    retry: bool = False

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
    ``site`` tells where the code stands, or is ``None`` where nobody wants to know.
    ``device`` is what the storages are taken from, as far as there is *room*;
    ``several_streams`` says that it was asked by more than one stream.
    """

    def __init__(self, *, workspace_bytes: int = 0, room: Room | None = None) -> None:
        self.device = DeviceMemory(room)
        self.events: list[MemoryEvent] = []
        self.op = ""
        self.site: Callable[[], Site] | None = None
        self.now_bytes = 0
        self.peak_bytes = 0
        self.several_streams = False
        self.unjudged: dict[tuple[str, str], None] = {}
        self.on_birth: Callable[[int], None] | None = None
        self._workspace_bytes = workspace_bytes
        self._workspaces: set[bool] = set()
        self._storages: dict[int, tuple[int, int, Any]] = {}
        self._numbers = 0

    def see(self, tensor: Any) -> None:
        """Count the storages behind *tensor*, the inside of a ghost."""
        if tensor.layout is torch.strided:
            self.see_storage(tensor.untyped_storage())
        elif tensor.layout is torch.sparse_coo:
            self.see_storage(tensor._indices().untyped_storage())  # noqa: SLF001, indices() coalesces
            self.see_storage(tensor._values().untyped_storage())  # noqa: SLF001
        else:
            for part in _parts(tensor):
                self.see_storage(part.untyped_storage())

    def see_storage(self, storage: Any) -> None:
        """Count *storage*, or the size it has got since."""
        key = storage._cdata  # noqa: SLF001, data_ptr() is the same for all empty ones
        nbytes = storage.nbytes()
        known = self._storages.get(key)
        if known is not None:
            if known[1] != nbytes:
                self._resized(key, nbytes)
        elif nbytes:
            reference = weakref.ref(storage, partial(self._gone, key))
            self._storages[key] = (self._born(nbytes), nbytes, reference)

    def begin(self, op: str, *, multiplies: bool) -> None:
        """Let *op* be what runs; a matrix product needs the workspace of its thread.

        Backward has a thread of its own.
        """
        self.op = op
        if multiplies:
            in_backward = current_node() is not None
            if in_backward not in self._workspaces:
                self._workspaces.add(in_backward)
                if self._workspace_bytes:
                    self._born(self._workspace_bytes, workspace=True)

    def number_of(self, tensor: Any) -> int | None:
        """Return the number of the storage behind *tensor*, the inside of a ghost."""
        if tensor.layout is not torch.strided:
            return None
        known = self._storages.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
        return known[0] if known is not None else None

    def leave_unjudged(self, op: str, reason: str) -> None:
        """Record that *op* ran and that nothing can be said about its memory."""
        self.unjudged[op, reason] = None

    def reset_peak(self) -> None:
        """``torch.cuda.reset_peak_memory_stats``."""
        self.peak_bytes = self.now_bytes
        self.device.allocator.reset_peaks()

    def empty_cache(self, *, retry: bool = False) -> None:
        """``torch.cuda.empty_cache``, or what the allocator does before it gives up."""
        self.device.empty_cache(retry=retry)
        self.events.append(MemoryEvent(0, 0, self.op, retry=retry))

    def _born(self, nbytes: int, *, workspace: bool = False) -> int:
        """Raise ``torch.OutOfMemoryError`` where the device is too small."""
        if not self.device.has_room(nbytes):
            self.empty_cache(retry=True)
        self.device.take(self._numbers + 1, nbytes)
        self._numbers += 1
        site = self.site() if self.site is not None else None
        self.events.append(MemoryEvent(self._numbers, nbytes, self.op, site, workspace))
        self.now_bytes += rounded(nbytes)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        if self.on_birth is not None:
            self.on_birth(len(self.events) - 1)
        return self._numbers

    def _resized(self, key: int, nbytes: int) -> None:
        """Take the new block before the old one is given back, as CUDA copies over."""
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
    """Who watches the memory of this process's one pretend GPU, if anybody does.

    ``share`` is what the process may take of it.
    """

    def __init__(self) -> None:
        self.live: LiveMemory | None = None
        self.share = 1.0

    @property
    def room(self) -> Room:
        """What the device has, and what of it this process may take."""
        total = PROPERTIES.total_memory
        return Room(total_bytes=total, allowed_bytes=int(total * self.share))

    def let_take(self, share: float) -> None:
        """Let the process take *share* of the device from now on."""
        self.share = share
        if self.live is not None and self.live.device.room is not None:
            self.live.device.room = self.room


MEMORY: Final = MemoryWatch()


@contextmanager
def watched(live: LiveMemory, ghosts: type[Any] | None) -> Iterator[LiveMemory]:
    """Let *live* see the instances of *ghosts* alive now, and all that is made inside."""
    before = MEMORY.live
    MEMORY.live = live
    try:
        if ghosts is not None:
            _see_all(live, ghosts)
        yield live
    finally:
        MEMORY.live = before


def _see_all(live: LiveMemory, ghosts: type[Any]) -> None:
    """See what is alive, the largest first.

    In which order it was born is not known, and the order in which the collector lists
    it differs from process to process.
    """
    insides = [ghost.inside for ghost in _alive(ghosts)]
    for inside in sorted(insides, key=_nbytes, reverse=True):
        live.see(inside)


def _alive(kind: type[Any]) -> Iterator[Any]:
    for candidate in gc.get_objects():
        if type(candidate) is kind:
            yield candidate


def _nbytes(tensor: Any) -> int:
    if tensor.layout is torch.strided:
        nbytes: int = tensor.untyped_storage().nbytes()
        return nbytes
    return 0
