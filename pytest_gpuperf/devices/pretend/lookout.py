"""Looks around at the peak of a step that is expected to be like the one before."""

from __future__ import annotations

from .call_sites import site_of_caller
from .live_memory import LiveMemory
from .memory_picture import Picture
from .memory_picture import Role
from .memory_picture import picture_of
from .memory_picture import roles_now
from .predicted_memory import StepMemory
from .predicted_memory import alive_at
from .record import Site
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
        self._roles: dict[int, Role] = {}
        live.on_birth = self._look
        live.site = self._site

    def picture(self, peak: int | None) -> Picture | None:
        """End the look-out and return what was alive at *peak*, the event it came at.

        ``None`` where it is not the one expected: what is alive at another moment
        explains nothing.
        """
        self._live.on_birth = self._live.site = None
        if peak is None or peak != self._expected:
            return None
        events = self._live.events
        return picture_of(alive_at(events, peak), self._roles, events[peak])

    def _look(self, index: int) -> None:
        if index == self._expected:
            self._roles.update(roles_now(self._live))

    def _site(self) -> Site:
        return site_of_caller(self._root, in_backward=current_node() is not None)
