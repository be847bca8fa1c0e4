"""Which line is to be blamed, and in which phase of the step it stands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from enum import auto
from functools import cache
from functools import lru_cache
from pathlib import Path
from types import FrameType

from ..model.finding import Location
from ..model.finding import Phase
from .call_site import OWN
from .call_site import PACKAGES
from .call_site import STDLIB
from .call_site import outwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where something happened.

    ``location`` is the innermost line below the root, ``innermost`` the innermost one
    outside of torch and the standard library. ``forward`` is the line whose backward
    was at work, where that is known.
    """

    location: Location | None
    innermost: Location | None
    phase: Phase
    forward: Location | None = None


class Room(Enum):
    """Whose source a frame belongs to."""

    OURS = auto()
    PROJECT = auto()
    ELSEWHERE = auto()
    TORCH = auto()
    AUTOGRAD = auto()
    OPTIMIZER = auto()
    OPTIMIZER_HOOK = auto()
    DATA = auto()


USERS = frozenset({Room.PROJECT, Room.ELSEWHERE})

OPTIMIZERS = frozenset({Room.OPTIMIZER, Room.OPTIMIZER_HOOK})

TORCH_ROOMS = {
    "autograd" + os.sep: Room.AUTOGRAD,
    "_tensor.py": Room.AUTOGRAD,
    str(Path("optim", "optimizer.py")): Room.OPTIMIZER_HOOK,
    "optim" + os.sep: Room.OPTIMIZER,
    str(Path("amp", "grad_scaler.py")): Room.OPTIMIZER,
    str(Path("nn", "utils", "clip_grad.py")): Room.OPTIMIZER,
    str(Path("utils", "data")) + os.sep: Room.DATA,
}

BACKWARDS = frozenset({"backward", "grad", "_engine_run_backward"})


def site_of_caller(
    root: str,
    *,
    in_backward: bool,
    forward: Location | None = None,
    caller: FrameType | None = None,
) -> Site:
    """Where the code that called into torch stands: *caller*, else the running thread."""
    start = caller or sys._getframe(1)  # noqa: SLF001, inspect.stack() reads sources
    location = innermost = None
    for frame, room in _rooms(root, start):
        if innermost is None and room in USERS:
            innermost = frame
        if room is Room.PROJECT:
            location = frame
            break
    return Site(
        location=_location(location),
        innermost=_location(innermost),
        phase=Phase.BACKWARD if in_backward else _phase(_rooms(root, start)),
        forward=forward,
    )


def _rooms(root: str, start: FrameType) -> Iterable[tuple[FrameType, Room]]:
    for frame in outwards(start):
        room = room_of(frame.f_code.co_filename, root)
        if room is not Room.OURS:
            yield frame, room


@lru_cache(maxsize=4096)
def room_of(file: str, root: str) -> Room:
    """Whose source *file* is, the project being everything of its own below *root*."""
    torch_root = _torch_root()
    if file.startswith(torch_root):
        inside = file[len(torch_root) :]
        found = (
            room for start, room in TORCH_ROOMS.items() if inside.startswith(start)
        )
        return next(found, Room.TORCH)
    installed = any(part in file for part in PACKAGES)
    if file.startswith((OWN, "<frozen ", "<@beartype")):
        return Room.OURS
    if file.startswith(root) and not installed:
        return Room.PROJECT
    if file.startswith(STDLIB) and not installed:
        return Room.OURS
    return Room.ELSEWHERE


def _phase(rooms: Iterable[tuple[FrameType, Room]]) -> Phase:
    """Read the phase off the stack, innermost frame first.

    What a closure does inside ``optimizer.step(closure)`` is not the optimizer's; what
    a user's own optimizer does in the ``step`` that torch's hook calls is.
    """
    phase = Phase.FORWARD
    users_between = in_closure = False
    inner = ""
    for frame, room in rooms:
        if room is Room.DATA:
            return Phase.DATA
        in_closure = in_closure or (room is Room.OPTIMIZER and users_between)
        is_own_step = room is Room.OPTIMIZER_HOOK and inner == "step"
        if not in_closure and (is_own_step or _is_optimizer(room, users_between)):
            phase = Phase.OPTIMIZER
        if room is Room.AUTOGRAD and frame.f_code.co_name in BACKWARDS:
            return Phase.BACKWARD
        users_between = users_between or room in USERS
        inner = frame.f_code.co_name
    return phase


def _is_optimizer(room: Room, users_between: bool) -> bool:  # noqa: FBT001, a fact beside the other
    return room in OPTIMIZERS and not users_between


def _location(frame: FrameType | None) -> Location | None:
    if frame is None:
        return None
    code = frame.f_code
    return Location(file=code.co_filename, line=frame.f_lineno, function=code.co_name)


@cache
def _torch_root() -> str:
    return f"{Path(sys.modules['torch'].__file__ or '').parent}{os.sep}"
