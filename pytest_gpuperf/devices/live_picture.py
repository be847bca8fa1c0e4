"""What the bytes alive at the peak of a step are for, and which lines hold them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..model.finding import Phase
from .autograd_node import current_node
from .live_bytes import LiveBytes
from .live_bytes import watched_step
from .memory_owners import owned_tensors
from .memory_owners import roles_of
from .memory_picture import Alive
from .memory_picture import Picture
from .memory_picture import Role
from .memory_picture import picture_of
from .memory_picture import role_by_birth
from .protocol import MemoryReading
from .protocol import Step
from .sites import Site
from .sites import site_of_caller
from .storages import HOST
from .storages import key_of
from .storages import storages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which memory is looked at: what the step uses of the host's, all on a GPU.

    Lines below the directory ``root`` are the project's.
    """

    root: str
    device: Any = HOST

    @property
    def is_whole(self) -> bool:
        """Whether tensors count that the step does not use: a GPU's allocator counts them."""
        return bool(self.device != HOST)


def read_looking_around(
    step: Step, arguments: Sequence[object], expected: int, root: str
) -> MemoryReading:
    """Count live bytes, and look around at the moment *expected* to be that of the peak.

    There is no picture where the peak is at another moment: what is alive then explains
    nothing. Raises whatever the step raises.
    """
    look = partial(PeakLookout, Scope(root=root), expected)
    lookout = watched_step(look, step, arguments)
    return replace(lookout.reading(), picture=lookout.picture())


def picture_of_steps(
    step: Step, batches: Iterator[Sequence[object]], scope: Scope
) -> Picture | None:
    """Run two steps: the first tells when the peak is, the second is looked around in.

    ``None`` where it is elsewhere in the second. Raises whatever the step raises.
    """
    first = watched_step(partial(LiveBytes, scope.device), step, next(batches))
    look = partial(PeakLookout, scope, first.peak_moment)
    return watched_step(look, step, next(batches)).picture()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """Which operation did something, and where."""

    op: str
    site: Site


class PeakLookout(LiveBytes):
    """Counts bytes as ever, and looks around at the moment where the peak is *expected*."""

    def __init__(self, scope: Scope, expected: int) -> None:
        self._scope = scope
        self._expected = expected
        self._thread = threading.get_ident()
        self._op = ""
        self._is_result = False
        self._births: dict[int, _Event] = {}
        self._peak: _Event | None = None
        self._alive: list[Alive] = []
        self._idle: dict[int, Alive] = {}
        super().__init__(scope.device)  # from here on storages may die
        if not expected:
            self._look()

    def picture(self) -> Picture | None:
        """Return what was alive at the peak, if it came when it was expected."""
        alive = [*self._alive, *(self._idle.values() if self._scope.is_whole else ())]
        if self.peak_moment != self._expected or not alive:
            return None
        if self._peak is None:
            return picture_of(alive, "", None)
        return picture_of(alive, self._peak.op, self._peak.site)

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
            self._peak = _Event(op=self._op, site=self._site())
            self._look()

    def _look(self) -> None:
        """Take down what is alive, and what will be known to be if the step uses it."""
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
            roles = roles_of(self._claims())
        self._alive = [
            _alive(size, roles.get(key), self._births.get(key))
            for key, size in self._used.items()
        ]
        self._idle = {
            key: _alive(size, roles.get(key), None)
            for key, size in self._unused.items()
        }

    def _claims(self) -> Iterator[tuple[int, Role]]:
        """Roles of storages, by their keys, that their owners tell right now."""
        for tensor, role in owned_tensors():
            for storage in storages_of(tensor, self._device):
                yield key_of(storage), role

    def _meet(self, storage: Any) -> None:
        """Remember what made *storage*; what was made elsewhere is an input."""
        super()._meet(storage)
        event = _Event(op=self._op, site=self._site())
        if not self._is_result:
            event = _Event(op="", site=replace(event.site, phase=Phase.DATA))
        self._births[key_of(storage)] = event

    def _site(self) -> Site:
        """Where the code stands, or, in a thread of autograd, where the step waits for it."""
        in_backward = current_node() is not None
        site = site_of_caller(self._scope.root, in_backward=in_backward)
        if site.innermost is not None or threading.get_ident() == self._thread:
            return site
        waiting = sys._current_frames().get(self._thread)  # noqa: SLF001, its only name
        return site_of_caller(self._scope.root, in_backward=in_backward, caller=waiting)

    def _use(self, key: int) -> None:
        self._claim(key)
        super()._use(key)

    def _gone(self, key: int, reference: object) -> None:
        self._claim(key)
        self._births.pop(key, None)
        super()._gone(key, reference)

    def _claim(self, key: int) -> None:
        """Count what was there before the step, and at the peak, and is of its use."""
        if key in self._unused and key in self._idle:
            self._alive.append(self._idle.pop(key))


def _alive(nbytes: int, role: Role | None, birth: _Event | None) -> Alive:
    op, site = ("", None) if birth is None else (birth.op, birth.site)
    return Alive(nbytes=nbytes, role=role or role_by_birth(site), op=op, site=site)
