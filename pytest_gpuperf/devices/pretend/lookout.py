"""Looks around at the peak of a step that is expected to be like the one before."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping

import torch

from ..memory_owners import owned_tensors
from ..memory_owners import roles_of
from ..memory_picture import Alive
from ..memory_picture import Picture
from ..memory_picture import Role
from ..memory_picture import picture_of
from ..memory_picture import role_by_birth
from ..sites import Site
from ..sites import site_of_caller
from .caching_allocator import rounded
from .ghost import Ghost
from .live_memory import LiveMemory
from .live_memory import MemoryEvent
from .predicted_memory import StepMemory
from .predicted_memory import alive_at
from .recorder import current_node


class Lookout:
    """Records sites from now on, and roles at the peak that *last* makes expect.

    Lines below the directory *root* are the project's.
    """

    def __init__(self, live: LiveMemory, root: str, last: StepMemory) -> None:
        self._live = live
        self._root = root
        self._expected = (
            None if last.peak is None else len(live.events) + last.peak - last.first
        )
        self._roles: Mapping[int, Role] = {}
        live.on_birth = self._look
        live.site = self._site

    def picture(self, peak: int | None) -> Picture | None:
        """End the look-out and return what was alive at *peak*, the event it came at.

        ``None`` where it is not the one expected: what is alive at another moment
        explains nothing. Blocks are rounded as the allocator rounds them.
        """
        self._live.on_birth = self._live.site = None
        if peak is None or peak != self._expected:
            return None
        events = self._live.events
        births = alive_at(events, peak)
        alive = [self._alive(number, birth) for number, birth in births.items()]
        return picture_of(alive, events[peak].op, events[peak].site)

    def _alive(self, number: int, birth: MemoryEvent) -> Alive:
        return Alive(
            nbytes=rounded(birth.nbytes),
            role=self._roles.get(number) or _role_of(birth),
            op=birth.op,
            site=birth.site,
        )

    def _look(self, index: int) -> None:
        if index == self._expected:
            with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
                self._roles = roles_of(_claims(self._live))

    def _site(self) -> Site:
        return site_of_caller(self._root, in_backward=current_node() is not None)


def _claims(live: LiveMemory) -> Iterator[tuple[int, Role]]:
    """Roles of storages, by their numbers, that their owners tell right now."""
    for tensor, role in owned_tensors():
        number = live.number_of(tensor.inside) if type(tensor) is Ghost else None
        if number is not None:
            yield number, role


def _role_of(birth: MemoryEvent) -> Role:
    return Role.WORKSPACES if birth.workspace else role_by_birth(birth.site)
