"""Finds the user's line that led to an event, and the phase of the step it is in."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from ..model.finding import Location, Phase
from .own_code import OWN, WITHOUT_FILE, is_own, is_standard


# The line of code that runs at this moment.

BACKWARD: Final = str(Path("autograd", "graph.py"))


def frames() -> Iterator[FrameType]:
    """Frames from the caller of this function outwards."""
    yield from outwards(sys._getframe(1))  # noqa: SLF001, inspect.stack() reads sources


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield *frame* and those that it was called from."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def torch_path(frame: FrameType) -> str | None:
    """Path of the frame's file inside the torch package, ``None`` outside of it."""
    file = frame.f_code.co_filename
    root = _torch_root()
    return file[len(root) :] if file.startswith(root) else None


def is_backward(frame: FrameType) -> bool:
    """Whether *frame* hands a backward pass over to autograd's engine."""
    name = frame.f_code.co_name
    return name == "_engine_run_backward" and torch_path(frame) == BACKWARD


def blamed(stack: Iterable[FrameType]) -> Location | None:
    """The innermost line outside torch, this package and the standard library."""
    for frame in stack:
        if is_blamable(frame.f_code.co_filename):
            return location_of(frame)
    return None


def blamed_below(root: str, stack: Iterable[FrameType]) -> Location | None:
    """The innermost line of the user's own code around *root*; none without a root."""
    if not root:
        return None
    return blamed(frame for frame in stack if is_own(frame.f_code.co_filename, root))


def own_and_inner(
    root: str, stack: Sequence[FrameType]
) -> tuple[Location | None, Location | None]:
    """Return the line of the user's own code and, if that is another, the innermost one."""
    innermost = blamed(stack)
    own = blamed_below(root, stack)
    if own is None or own == innermost:
        return innermost, None
    return own, innermost


def is_blamable(file: str) -> bool:
    """Whether *file* is outside of torch, this package and the standard library."""
    return not (file.startswith((OWN, _torch_root(), "<frozen ")) or is_standard(file))


@cache
def _torch_root() -> str:
    return f"{Path(sys.modules['torch'].__file__ or '').parent}{os.sep}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where something happened.

    ``location`` is the innermost line below the root, ``innermost`` the innermost one
    outside of torch and the standard library. In a backward, ``forward`` is the line
    of the forward that it belongs to, if that is known.
    """

    location: Location | None
    innermost: Location | None
    phase: Phase
    forward: Location | None = None

    def __hash__(self) -> int:
        # Of one line: every event on the device is counted by its site.
        line = self.location or self.innermost
        return hash((line.line, line.function)) if line else 0


def where_of(site: Site) -> dict[str, Any]:
    """Return the fields of a finding that say where it is."""
    elsewhere = site.innermost != site.location
    return {
        "location": site.location or site.innermost,
        "phase": site.phase,
        "innermost": site.innermost if elsewhere and site.location else None,
        "forward": site.forward,
    }


class SourceOwner(Enum):
    """The owner of the source that a frame runs."""

    OURS = auto()
    PROJECT = auto()
    ELSEWHERE = auto()
    TORCH = auto()
    AUTOGRAD = auto()
    OPTIMIZER = auto()
    OPTIMIZER_HOOK = auto()
    DATA = auto()


USERS = frozenset({SourceOwner.PROJECT, SourceOwner.ELSEWHERE})

OPTIMIZERS = frozenset({SourceOwner.OPTIMIZER, SourceOwner.OPTIMIZER_HOOK})

TORCH_ROOMS = {
    "autograd" + os.sep: SourceOwner.AUTOGRAD,
    "_tensor.py": SourceOwner.AUTOGRAD,
    # The order matters, the first prefix that fits is taken: this file before its
    # folder.
    str(Path("optim", "optimizer.py")): SourceOwner.OPTIMIZER_HOOK,
    "optim" + os.sep: SourceOwner.OPTIMIZER,
    str(Path("amp", "grad_scaler.py")): SourceOwner.OPTIMIZER,
    str(Path("nn", "utils", "clip_grad.py")): SourceOwner.OPTIMIZER,
    str(Path("utils", "data")) + os.sep: SourceOwner.DATA,
}

BACKWARDS = frozenset({"backward", "grad", "_engine_run_backward"})


def site_of_caller(
    root: str,
    *,
    phase: Phase | None = None,
    forward: Location | None = None,
    caller: FrameType | None = None,
) -> Site:
    """Return the line that called into torch, from *caller* or the running thread.

    Without a *phase*, that is read off the whole stack.
    """
    start = caller or sys._getframe(1)  # noqa: SLF001, inspect.stack() reads sources
    frame: FrameType | None = start
    location = innermost = None
    # No generator: each read of an element asks, and most of its frames are ours.
    while frame is not None:
        room = room_of(frame.f_code.co_filename, root)
        if room is SourceOwner.PROJECT:
            location = frame
            break
        if innermost is None and room is SourceOwner.ELSEWHERE:
            innermost = frame
        frame = frame.f_back
    return _site(
        location and location_of(location),
        innermost and location_of(innermost),
        phase or _phase(_rooms(root, start)),
        forward,
    )


# A loop comes by the same places again, and to make these costs more than to run them.
@lru_cache(maxsize=4096)
def _site(
    own: Location | None,
    inner: Location | None,
    phase: Phase,
    forward: Location | None,
) -> Site:
    return Site(location=own, innermost=inner or own, phase=phase, forward=forward)


NAMED_IN_TORCH: Final = tuple(
    f"{folder}{os.sep}"
    for folder in ("amp", "ao", "distributed", "distributions", "nn", "optim", "sparse")
)
"""Parts of torch that a program calls by name, and that read tensors themselves."""

UNNAMED_IN_TORCH: Final = frozenset(
    str(Path("nn", "modules", name)) for name in ("module.py", "container.py")
)
"""Files that only hand on: every call and every move of a module goes through them."""

MOVES: Final = frozenset({"convert", "<lambda>"})
"""What ``Module.to()``, ``.cuda()`` and such call for each parameter."""


def line_of_torch() -> Location | None:
    """Return the innermost line of torch's modules, optimizers and such, below the user's."""
    for frame in outwards(sys._getframe(1)):  # noqa: SLF001, inspect.stack() reads sources
        if _is_passed_over(frame.f_code.co_filename):
            continue
        inside = torch_path(frame)
        if inside is None:
            return None
        is_named = inside not in UNNAMED_IN_TORCH or frame.f_code.co_name in MOVES
        if inside.startswith(NAMED_IN_TORCH) and is_named:
            return location_of(frame)
    return None


@lru_cache(maxsize=4096)
def _is_passed_over(file: str) -> bool:
    return file.startswith((OWN, "<frozen ")) or is_standard(file)


def lines_of_step(root: str) -> list[Location]:
    """Lines of the project between here and the start of the step, innermost first."""
    found: dict[Location, None] = {}
    for frame in outwards(sys._getframe(1)):  # noqa: SLF001, inspect.stack() reads sources
        file = frame.f_code.co_filename
        if found and file.startswith(OWN):
            break
        if room_of(file, root) is SourceOwner.PROJECT:
            found[location_of(frame)] = None
    return list(found)


def _rooms(root: str, start: FrameType) -> Iterable[tuple[FrameType, SourceOwner]]:
    frame: FrameType | None = start
    while frame is not None:
        room = room_of(frame.f_code.co_filename, root)
        if room is not SourceOwner.OURS:
            yield frame, room
        frame = frame.f_back


# It is asked for every frame of every operation: files are few and stacks are deep.
@lru_cache(maxsize=4096)
def room_of(file: str, root: str) -> SourceOwner:
    """Return who owns *file*; what is the project's, ``is_own`` says."""
    torch_root = _torch_root()
    if file.startswith(torch_root):
        inside = file[len(torch_root) :]
        found = (
            room for start, room in TORCH_ROOMS.items() if inside.startswith(start)
        )
        return next(found, SourceOwner.TORCH)
    if is_own(file, root):
        return SourceOwner.PROJECT
    if file.startswith((OWN, *WITHOUT_FILE)) or is_standard(file):
        return SourceOwner.OURS
    return SourceOwner.ELSEWHERE


def _phase(rooms: Iterable[tuple[FrameType, SourceOwner]]) -> Phase:
    """Read the phase off the stack, innermost frame first.

    What a closure does inside ``optimizer.step(closure)`` is not the optimizer's. What
    a user's own optimizer does in the ``step`` that torch's hook calls is.
    """
    phase = Phase.FORWARD
    users_between = in_closure = False
    inner = ""
    for frame, room in rooms:
        if room is SourceOwner.DATA:
            return Phase.DATA
        in_closure = in_closure or (room is SourceOwner.OPTIMIZER and users_between)
        is_own_step = room is SourceOwner.OPTIMIZER_HOOK and inner == "step"
        if not in_closure and (is_own_step or _is_optimizer(room, users_between)):
            phase = Phase.OPTIMIZER
        if room is SourceOwner.AUTOGRAD and frame.f_code.co_name in BACKWARDS:
            return Phase.BACKWARD
        users_between = users_between or room in USERS
        inner = frame.f_code.co_name
    return phase


def _is_optimizer(room: SourceOwner, users_between: bool) -> bool:  # noqa: FBT001, a fact next to the other
    return not users_between and room in OPTIMIZERS


# The line in a condition of several lines.

WHOLE_CONDITION: Final = frozenset(
    code
    for name, code in dis.opmap.items()
    if name.startswith(("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT"))
)
"""Instructions that ask an operand for its truth; Python gives some the line of the
whole statement."""

WITH_OPERAND: Final = frozenset(
    dis.opmap[name]
    for name in ("CACHE", "COPY", "DUP_TOP", "EXTENDED_ARG", "NOP", "TO_BOOL")
    if name in dis.opmap
)
"""Instructions between an operand and the question for its truth."""

INSTRUCTION_BYTES: Final = 2


def location_of(frame: FrameType) -> Location:
    """Return the line that *frame* is at; in a condition that of the operand asked."""
    code, place = frame.f_code, frame.f_lasti
    found = _located.get((id(code), place))
    if found is None:
        if len(_located) >= MOST_LINES:
            _located.clear()
        found = _located[id(code), place] = _line_at(code, place), code
    return found[0]


MOST_LINES: Final = 4096

_located: Final[dict[tuple[int, int], tuple[Location, CodeType]]] = {}
"""By the number of the code, which is kept: to hash code takes longer the more of it there is."""


def _line_at(code: CodeType, place: int) -> Location:
    line = _operand_line(code, place) or _line_in(code, place) or code.co_firstlineno
    return Location(file=code.co_filename, line=line, function=code.co_name)


def _line_in(code: CodeType, place: int) -> int | None:
    lines = (line for start, end, line in code.co_lines() if start <= place < end)
    return next(lines, None)


def _operand_line(code: CodeType, place: int) -> int | None:
    """Line of the operand that the instruction at *place* asks for its truth, if any."""
    instructions = code.co_code
    if place < 0 or instructions[place] not in WHOLE_CONDITION:
        return None
    place -= INSTRUCTION_BYTES
    while place > 0 and instructions[place] in WITH_OPERAND:
        place -= INSTRUCTION_BYTES
    return _line_in(code, place)
