"""Whose line of code runs at this moment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

from ..model.finding import Location


OWN: Final = f"{Path(__file__).absolute().parents[1]}{os.sep}"
STDLIB: Final = f"{Path(os.__file__).absolute().parent}{os.sep}"
INSTALLED: Final = tuple(
    f"{STDLIB}{name}" for name in ("site-packages", "dist-packages")
)

PACKAGES: Final = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)

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
        if _is_blamable(frame.f_code.co_filename):
            return Location(
                file=frame.f_code.co_filename,
                line=frame.f_lineno,
                function=frame.f_code.co_name,
            )
    return None


def blamed_below(root: str, stack: Iterable[FrameType]) -> Location | None:
    """The innermost line of the project, which is what is not installed below *root*."""
    if not root:
        return None
    top = f"{root.rstrip(os.sep)}{os.sep}"
    return blamed(
        frame
        for frame in stack
        if frame.f_code.co_filename.startswith(top)
        and not any(part in frame.f_code.co_filename for part in PACKAGES)
    )


def _is_blamable(file: str) -> bool:
    if file.startswith((OWN, _torch_root(), "<frozen ")):
        return False
    return not file.startswith(STDLIB) or file.startswith(INSTALLED)


@cache
def _torch_root() -> str:
    return f"{Path(sys.modules['torch'].__file__ or '').parent}{os.sep}"
