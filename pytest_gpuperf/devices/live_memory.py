"""Live tensor storages of a step: its peak by purpose and line, and what it leaves.

Each storage counts once, however many views it has. Memory that one operation takes and
gives back inside its kernel is not seen, nor is what libraries allocate for themselves.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import torch

from ..model.finding import Finding, FindingKind, MemoryCourse, Phase
from .base import Step
from .garbage import described_cycle, held_collector
from .memory_owners import current_node, key_of, owned_tensors, roles_of, storages_of
from .memory_picture import (
    Change,
    Garbage,
    LiveBlock,
    Picture,
    StorageRole,
    course_of,
    held_by_place,
    picture_of,
    role_by_birth,
)
from .operations import Watching, eager, redispatch
from .source_lines import Site, site_of_caller
from .step_thread import STEPS


UNPACKED: Final = (
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Storage_storage_offset,
)
"""How a tensor comes out of shared memory, possibly before its turn: no use of it yet."""

L = TypeVar("L", bound="LiveBytes")


def watched_step(make: Callable[[], L], step: Step, arguments: Sequence[object]) -> L:
    """Run *step* once, observed by what *make* returns, and return that observer."""
    with held_collector() as collector, eager():
        if not collector.is_off:
            collector.collect()
        # Made inside: it looks through all objects, and the collector must have run
        # before that and must not run during the step, or deaths would come at random.
        live = make()
        collector.begin_step()
        with STEPS.inside(live), watching_resizes(live.resized):
            step(*arguments)
        live.forget()
    return live


@contextmanager
def watching_resizes(notify: Callable[[Any], None]) -> Iterator[None]:
    """Call *notify* with each storage that ``UntypedStorage.resize_`` has just resized.

    FSDP allocates and frees gathered parameters that way. No dispatch mode sees it.
    """
    kind: Any = torch.UntypedStorage
    resize = kind.resize_

    def resize_(storage: Any, nbytes: int) -> Any:
        result = resize(storage, nbytes)
        notify(storage)
        return result

    kind.resize_ = resize_
    try:
        yield
    finally:
        # The method is inherited from the base class, so deleting ours uncovers it. It
        # is set again only if somebody else had patched the class before us.
        del kind.resize_
        if kind.resize_ is not resize:
            kind.resize_ = resize


class LiveBytes(Watching):
    """Bytes alive on *device* while the mode is active, by weak references to storages.

    A storage that was there before and is used at any time was alive from the start:
    its bytes are added to the peak seen so far. One that comes into sight and was not
    there before (made by numpy, by a worker) counts from then on. ``peak_moment``
    numbers the looks at an operation's tensors: that of the peak; 0 is the start.
    """

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.peak_bytes = 0
        self.peak_moment = 0
        self._moment = 0
        self._device = device
        self._now_bytes = 0
        self._used: dict[int, int] = {}
        self._unused: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[Any]] = {}
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
            self._find_all()

    def resized(self, storage: Any) -> None:
        """Count *storage* by the size that it has now."""
        if storage.device == self._device:
            self._count_storage(storage)
            self._see(())

    def forget(self) -> None:
        """Stop following storages: what dies after the step must not change its numbers."""
        self._watched.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # Which batches a loader unpacks during a step depends on how fast its workers
        # are: counted here, the same step would have different peaks.
        if func in UNPACKED:
            return redispatch(self, func, args, kwargs or {})
        # Before the operation: a storage from outside must count as alive at the moment
        # of its first use, and not only from the result on.
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
        """Count the storages of *values*, in lists and tuples as well."""
        # Every operation passes here, so there are no generators and no helper calls
        # for the common case, in which a storage is known and has not changed its size.
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
        # It was alive from the start, so every moment up to here was larger by its
        # size, that of the peak among them: both are raised together.
        size = self._unused.pop(key)
        self.peak_bytes += size
        self._now_bytes += size
        self._used[key] = size

    def _find_all(self) -> None:
        for candidate in gc.get_objects():
            # Not isinstance: it would run ``__class__`` of proxies that are not ours.
            if issubclass(type(candidate), torch.Tensor):
                self._find(candidate)

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
        # A storage from before the step that dies in it was used by it: ``zero_grad``
        # frees gradients without any operation on them. It was alive up to now, so the
        # peak so far rises by its size.
        self.peak_bytes += self._unused.pop(key, 0)
        self._now_bytes -= self._used.pop(key, 0)


def _storage_of(tensor: Any) -> Any:
    """Return the storage of *tensor* on any device; ``None`` if it has several."""
    try:
        return tensor.untyped_storage()
    # Sparse and other layouts have several storages and refuse the question.
    except NotImplementedError:
        return None


# Live bytes at the peak of a step, by purpose and by line.

NEVER: Final = -1
"""A moment that never comes, as moments are counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which memory is looked at. Lines below the directory ``root`` are the project's."""

    root: str
    device: Any


def picture_of_steps(
    step: Step, batches: Iterator[Sequence[object]], scope: Scope
) -> Picture | None:
    """Run two steps: the first finds the moment of the peak, the second pictures it.

    ``None`` if the peak of the second is elsewhere. Raises whatever the step raises.
    """
    first = watched_step(partial(LiveBytes, scope.device), step, next(batches))
    look = partial(PeakLookout, scope, first.peak_moment)
    return watched_step(look, step, next(batches)).picture()


def left_by_step(
    step: Step, batches: Iterator[Sequence[object]], scope: Scope
) -> tuple[Finding, ...]:
    """Return what the first of two steps makes that is alive after the second."""
    seen = watched_step(partial(_Births, scope), step, next(batches))
    with eager():
        step(*next(batches))
    gc.collect()
    return seen.left()


def garbage_of_step(
    step: Step, batches: Iterator[Sequence[object]], scope: Scope
) -> Garbage:
    """Return what the first of two steps makes and only the collector frees after both."""

    def size_of(thing: Any) -> int:
        is_tensor = issubclass(type(thing), torch.Tensor)
        found = storages_of(thing, scope.device) if is_tensor else ()
        return sum(storage.nbytes() for storage in found)

    with held_collector() as collector:
        seen = watched_step(partial(_Births, scope), step, next(batches))
        with eager():
            step(*next(batches))
        found: list[str] = []
        held = seen.freed_by(lambda: found.append(described_cycle(collector, size_of)))
    nbytes = sum(each.held_bytes for each in held)
    return Garbage(nbytes=nbytes, held=held, cycle=found[0])


_Event = tuple[str, Site]
"""Which operation did something, and where."""


class _CourseRecord:
    """Records sizes of storages over a step; addresses are used again, numbers are not."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._roles: dict[int, StorageRole] = {}
        self._before: list[Change] = []
        self._changes: list[Change] = []
        self._count = 0

    def was_there(self, key: int, nbytes: int, role: StorageRole | None) -> None:
        """Count what was alive from the step's start on."""
        number = self._number(key)
        self._sizes[number] = nbytes
        found = role or StorageRole.INPUTS
        self._before.append(Change(number, nbytes, found))

    def has(self, key: int, nbytes: int, birth: _Event | None) -> None:
        """Let a storage have this size from now on."""
        number = self._number(key)
        if self._sizes.get(number) == nbytes:
            return
        self._sizes[number] = nbytes
        site = birth[1] if birth else None
        phase = site.phase if site else None
        self._changes.append(Change(number, nbytes, role_by_birth(site), phase))

    def gone(self, key: int) -> None:
        """Release a storage."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._changes.append(Change(number, 0, StorageRole.INPUTS))

    def claim(self, roles: Mapping[int, StorageRole]) -> None:
        """Let the storages alive have these *roles*, if none was claimed before."""
        for key, role in roles.items():
            if key in self._numbers:
                self._roles.setdefault(self._numbers[key], role)

    def course(self) -> MemoryCourse:
        """Follow the step."""
        return course_of(
            *(
                [c._replace(role=self._roles.get(c.number, c.role)) for c in changes]
                for changes in (self._before, self._changes)
            )
        )

    def _number(self, key: int) -> int:
        if key not in self._numbers:
            self._count += 1
            self._numbers[key] = self._count
        return self._numbers[key]


class PeakLookout(LiveBytes):
    """Counts bytes, and records what is alive at the moment of the *expected* peak."""

    def __init__(self, scope: Scope, expected: int) -> None:
        self._scope = scope
        self._expected = expected
        self._thread = STEPS.ident
        self._op = ""
        self._is_result = False
        self._births: dict[int, _Event] = {}
        self._course = _CourseRecord()
        self._peak: _Event | None = None
        self._alive: list[LiveBlock] = []
        self._idle: dict[int, LiveBlock] = {}
        # Last: from here on storages may die, and ``_gone`` needs the fields above.
        super().__init__(scope.device)
        self._claimed_before = self._roles()
        if not expected:
            self._look()

    def picture(self) -> Picture | None:
        """Return what was alive at the peak, if it came when it was expected."""
        # Unused tensors as well, as in a GPU's allocator.
        alive = [*self._alive, *self._idle.values()]
        if self.peak_moment != self._expected or not alive:
            return None
        op, site = self._peak or ("", None)
        for key, size in self._unused.items():
            self._course.was_there(key, size, self._claimed_before.get(key))
        return replace(picture_of(alive, op, site), course=self._course.course())

    def forget(self) -> None:
        """Ask once more what belongs to whom: gradients and state are made in the step."""
        self._course.claim(self._roles())
        super().forget()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._op = str(func.name()).partition(".")[0]
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _see_result(self, result: Any) -> None:
        self._is_result = True
        super()._see_result(result)
        self._is_result = False

    def _see(self, values: Any) -> None:
        super()._see(values)
        if self._moment == self._expected:
            self._peak = (self._op, self._site())
            self._look()

    def _look(self) -> None:
        """Record what is alive, and what turns out to be if the step uses it later."""
        roles = self._roles()
        self._course.claim(roles)
        self._alive = [
            _alive(size, roles.get(key), self._births.get(key))
            for key, size in self._used.items()
        ]
        self._idle = {
            key: _alive(size, roles.get(key), None)
            for key, size in self._unused.items()
        }

    def _roles(self) -> Mapping[int, StorageRole]:
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
            return roles_of(self._claims())

    def _claims(self) -> Iterator[tuple[int, StorageRole]]:
        """Yield the keys of storages and the roles their owners give them now."""
        for tensor, role in owned_tensors():
            for storage in storages_of(tensor, self._device):
                yield key_of(storage), role

    def _meet(self, storage: Any) -> None:
        """Remember what made *storage*; what was made elsewhere is an input."""
        super()._meet(storage)
        op, site = self._op, self._site()
        if not self._is_result:
            op, site = "", replace(site, phase=Phase.DATA)
        self._births[key_of(storage)] = (op, site)

    def _site(self) -> Site:
        """Return the running line; in autograd's thread, the line that waits for it."""
        # A thread of autograd has no Python frames of the user. The frames of the
        # thread that runs the step show which ``backward()`` it works for.
        phase = None if current_node() is None else Phase.BACKWARD
        site = site_of_caller(self._scope.root, phase=phase)
        if site.innermost is not None or threading.get_ident() == self._thread:
            return site
        waiting = sys._current_frames().get(self._thread)  # noqa: SLF001
        return site_of_caller(self._scope.root, phase=phase, caller=waiting)

    def _count_storage(self, storage: Any) -> None:
        super()._count_storage(storage)
        key = key_of(storage)
        self._course.has(key, self._used[key], self._births.get(key))

    def _use(self, key: int) -> None:
        self._claim(key)
        self._course.was_there(key, self._unused[key], self._claimed_before.get(key))
        super()._use(key)

    def _gone(self, key: int, reference: object) -> None:
        self._claim(key)
        if key in self._unused:
            size, role = self._unused[key], self._claimed_before.get(key)
            self._course.was_there(key, size, role)
        self._course.gone(key)
        self._births.pop(key, None)
        super()._gone(key, reference)

    def _claim(self, key: int) -> None:
        """Count a used storage from before the step that was alive at the peak."""
        if key in self._unused and key in self._idle:
            self._alive.append(self._idle.pop(key))


class _Births(PeakLookout):
    """Remembers what a step makes, and where, until it is freed."""

    def __init__(self, scope: Scope) -> None:
        self._made: list[tuple[weakref.ref[Any], int, _Event]] = []
        super().__init__(scope, expected=NEVER)

    def forget(self) -> None:
        """Keep following what is alive at the step's end."""
        # The weak references are taken over before the base class drops them.
        self._made = [
            (self._watched[key], self._used.get(key, 0), event)
            for key, event in self._births.items()
            if event[0] and key in self._watched
        ]
        super().forget()

    def freed_by(self, collect: Callable[[], object]) -> tuple[Finding, ...]:
        """Return what of it that frees, the youngest first."""
        alive = [each for each in self._made if each[0]() is not None]
        collect()
        freed = [(size, event) for ref, size, event in alive if ref() is None]
        return _held(freed, FindingKind.GARBAGE)

    def left(self) -> tuple[Finding, ...]:
        """Return what of it is alive now, the youngest first."""
        alive = [(size, event) for ref, size, event in self._made if ref() is not None]
        return _held(alive, FindingKind.LEFT)


def _held(made: Iterable[tuple[int, _Event]], kind: FindingKind) -> tuple[Finding, ...]:
    return held_by_place(((size, op, site) for size, (op, site) in made), kind)


def _alive(nbytes: int, role: StorageRole | None, birth: _Event | None) -> LiveBlock:
    op, site = birth or ("", None)
    return LiveBlock(nbytes=nbytes, role=role or role_by_birth(site), op=op, site=site)
