"""Peak of the bytes in live tensor storages, exact and the same in every process.

Counted is what a step uses: storages it makes, storages it reads or writes, and those
it lets go (last step's gradients under ``zero_grad``). Each storage counts once,
however many views it has. Memory that one operation takes and gives back inside its
kernel is not seen, nor is what libraries allocate for themselves.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from functools import partial
from typing import Any
from typing import Final
from typing import TypeVar

import torch

from ..model.memory_metric import LIVE_PEAK
from .dispatch import eager
from .dispatch import redispatch
from .garbage import no_garbage_collection
from .protocol import MemoryReading
from .protocol import Step
from .resizing import told_of_resizing
from .storages import HOST
from .storages import key_of
from .storages import storages_of
from .waiting_batches import loading_kinds
from .waiting_batches import waiting_in
from .watching import Watching


UNPACKED: Final = (
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Storage_storage_offset,
)
"""How a tensor comes out of shared memory, maybe before its turn: no use of it yet."""

L = TypeVar("L", bound="LiveBytes")


def read_live_bytes(step: Step, arguments: Sequence[object]) -> MemoryReading:
    """Run *step* once, watched; a compiled step is counted as an eager one."""
    return watched_step(LiveBytes, step, arguments).reading()


def watched_step(make: Callable[[], L], step: Step, arguments: Sequence[object]) -> L:
    """Run *step* once under the watch that *make* makes, and return that."""
    with no_garbage_collection(), eager():
        live = make()
        with live, told_of_resizing(live.resized):
            step(*arguments)
        live.forget()
    return live


class LiveBytes(Watching):
    """Bytes alive on *device* while the mode is active, by weak references to storages.

    A storage that was there before and is used at any time was alive from the start:
    its bytes are added to the peak seen so far. One that comes into sight and was not
    there before (made by numpy, by a worker) counts from then on. ``peak_moment``
    numbers the looks at an operation's tensors: that of the peak; 0 is the start.
    """

    def __init__(self, device: Any = HOST) -> None:
        super().__init__()
        self.peak_bytes = 0
        self.peak_moment = 0
        self._moment = 0
        self._device = device
        self._now_bytes = 0
        self._used: dict[int, int] = {}
        self._unused: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._loading: list[weakref.ref[Any]] = []
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
            self._find_all()

    @property
    def end_bytes(self) -> int:
        """Bytes of all live storages, used or not; batches that wait do not count."""
        sizes = self._used | self._unused
        for key in self._waiting():
            sizes.pop(key, None)
        return sum(sizes.values())

    def _waiting(self) -> Iterator[int]:
        """Keys of storages that loaders hold for later."""
        for loading in self._loading:
            for value in waiting_in(loading()):
                if isinstance(value, torch.Tensor):
                    yield from map(key_of, storages_of(value, self._device))

    def reading(self) -> MemoryReading:
        """Sum up, after the step."""
        return MemoryReading(
            exact={LIVE_PEAK.name: self.peak_bytes},
            end_bytes=self.end_bytes,
            peak_moment=self.peak_moment,
        )

    def resized(self, storage: Any) -> None:
        """Count *storage* by the size that it has now."""
        if storage.device == self._device:
            self._count_storage(storage)
            self._see(())

    def forget(self) -> None:
        """Stop following storages."""
        self._watched.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in UNPACKED:
            return redispatch(self, func, args, kwargs or {})
        self._see(args)
        if kwargs:
            self._see(kwargs.values())
        result = redispatch(self, func, args, kwargs or {})
        self._see_result(result)
        return result

    def _see_result(self, result: Any) -> None:
        self._see((result,))

    def _see(self, values: Iterable[Any]) -> None:
        self._count_all(values)
        self._moment += 1
        if self._now_bytes > self.peak_bytes:
            self.peak_bytes = self._now_bytes
            self.peak_moment = self._moment

    def _count_all(self, values: Iterable[Any]) -> None:
        """Count what *values* hold; every operation comes by here, so no generators."""
        used = self._used
        for value in values:
            if isinstance(value, torch.Tensor):
                storage = _storage_of(value)
                if storage is None or used.get(storage._cdata) != storage.nbytes():  # noqa: SLF001, key_of() is a call
                    self._count(value)
            elif isinstance(value, (list, tuple)):
                self._count_all(value)

    def _count(self, tensor: Any) -> None:
        for storage in storages_of(tensor, self._device):
            self._count_storage(storage)

    def _count_storage(self, storage: Any) -> None:
        key, size = key_of(storage), storage.nbytes()
        if key in self._unused:
            self._use(key)
        elif key not in self._used:
            self._meet(storage)
        self._now_bytes += size - self._used[key]
        self._used[key] = size

    def _use(self, key: int) -> None:
        size = self._unused.pop(key)
        self.peak_bytes += size
        self._now_bytes += size
        self._used[key] = size

    def _find_all(self) -> None:
        loading = loading_kinds()
        for candidate in gc.get_objects():
            # not isinstance: it would run __class__ of proxies that are none of ours
            if issubclass(type(candidate), torch.Tensor):
                self._find(candidate)
            elif issubclass(type(candidate), loading):
                self._loading.append(weakref.ref(candidate))
        for key in self._waiting():
            self._unused.pop(key, None)

    def _find(self, tensor: Any) -> None:
        for found in (tensor, tensor.grad if tensor.is_leaf else None):
            if found is not None:
                for storage in storages_of(found, self._device):
                    self._watch(storage)
                    self._unused[key_of(storage)] = storage.nbytes()

    def _meet(self, storage: Any) -> None:
        self._watch(storage)
        self._used[key_of(storage)] = 0

    def _watch(self, storage: Any) -> None:
        key = key_of(storage)
        self._watched[key] = weakref.ref(storage, partial(self._gone, key))

    def _gone(self, key: int, _: object) -> None:
        self._watched.pop(key, None)
        self.peak_bytes += self._unused.pop(key, 0)
        self._now_bytes -= self._used.pop(key, 0)


def _storage_of(tensor: Any) -> Any:
    """Return the storage of *tensor* wherever it is; ``None`` if it has no single one."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # its layout hides it
        return None
