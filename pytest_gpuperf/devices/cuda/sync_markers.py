"""Marks the line of each sync with the GPU in the trace, where ``measure.trace`` reads it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import wraps
from types import FrameType
from typing import Any, Final

from ...model.finding import Location
from ..allow_sync import marker_of
from ..base import BACKWARD_MARKER, LATE_MARKER, SYNC_MARKER
from ..own_code import OWN
from ..source_lines import (
    blamed,
    frames,
    is_backward,
    outwards,
    own_and_inner,
    torch_path,
)
from ..step_thread import STEPS


# Syncs that Python code asks for and torch does not warn of, each inside a range.

ASKED_SYNCS: Final = (
    ("torch._C", "_cuda_synchronize"),
    ("torch._C", "_accelerator_synchronizeDevice"),
    ("torch.cuda.Event", "synchronize"),
)
"""Where each is found at the moment of the call; waits for a stream are warned of.

``torch.Event``, the event of no device in particular, is a type that cannot be changed.
"""


Around = Callable[[str], AbstractContextManager[object]]
"""Returns what a sync runs inside of, by the kind of its marker."""


@contextmanager
def asked_syncs_marked(torch: Any, around: Around) -> Iterator[None]:
    """Put each sync that Python code asks torch for inside a range with its line."""
    with ExitStack() as undo:
        for path, name in ASKED_SYNCS:
            owner = _found(torch, path)
            wait = getattr(owner, name, None)
            if wait is not None:
                undo.callback(setattr, owner, name, wait)
                setattr(owner, name, _inside_range(wait, around))
        yield


def _found(torch: Any, path: str) -> Any:
    """Return what *path* names in *torch*; ``None`` if this torch lacks it."""
    found = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _inside_range(wait: Callable[..., object], around: Around) -> Any:
    @wraps(wait)
    def marked(*arguments: object, **named: object) -> object:
        with around(SYNC_MARKER):
            return wait(*arguments, **named)

    return marked


# Torch's warnings at synchronisations, heard and not shown.
#
# They miss what waits outside of ``memcpy_and_sync`` and ``stream_synchronize``
# (c10/cuda/CUDAFunctions.h). They come after the sync: torch keeps them until the
# operation returns to Python (``PyWarningHandler``, torch/csrc/Exceptions.h), and those
# of autograd's own nodes until the whole backward pass does.

MESSAGE: Final = "called a synchronizing CUDA operation"
ABOUT_THE_MODE: Final = "Synchronization debug mode is a prototype"
"""What torch warns of once, when the mode is switched on."""


@contextmanager
def warned(torch: Any, notify: Callable[[str], None]) -> Iterator[None]:
    """Call *notify* after each operation, once for each sync that torch warns of.

    It is given the kind of marker that is due. Entered around the step and not before:
    pytest and others have contexts of their own for warnings. What else is warned of
    goes its usual way.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with heard(notify):
        try:
            torch.cuda.set_sync_debug_mode("warn")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def heard(notify: Callable[[str], None]) -> Iterator[None]:
    """Call *notify* for each warning of a sync, once torch's mode is switched on."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def hear(message: Warning | str, *where: Any, **more: Any) -> None:
            if str(message).startswith(MESSAGE):
                notify(BACKWARD_MARKER if _is_replayed() else LATE_MARKER)
            else:
                show(message, *where, **more)

        # By default Python shows a warning once per line, and each sync counts.
        warnings.filterwarnings("always", message=MESSAGE)
        warnings.filterwarnings("ignore", message=ABOUT_THE_MODE)
        warnings.showwarning = hear
        yield


def _is_replayed() -> bool:
    """Whether the syncs were those of autograd's nodes, on whatever thread."""
    inner = (f for f in frames() if not _only_warns(f.f_code.co_filename))
    return any(is_backward(frame) for frame in list(inner)[:1])


def _only_warns(file: str) -> bool:
    return file.startswith(OWN) or file.endswith("warnings.py")


@contextmanager
def lines_marked(torch: Any, root: str = "") -> Iterator[None]:
    """Mark each sync inside the context that torch reports, with the running line.

    The line is the innermost one of the project below *root*, and with it the
    innermost one outside of torch if that is another.

    Torch's callbacks at syncs (``torch.cuda._gpu_trace``) would report all of them. But
    with them torch enters Python at each free as well, also while an error is looking
    for its handler, which ends the process.
    """
    marker = LineMarker(root)
    with asked_syncs_marked(torch, marker.around), warned(torch, marker.mark):
        yield


class LineMarker:
    """Puts ranges with the line at work into the trace of the running thread.

    The step's lines are those of the thread that runs the steps.
    """

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._caller = STEPS.ident

    def mark(self, prefix: str) -> None:
        """Put an empty range into the trace whose name begins with *prefix*."""
        with self.around(prefix):
            pass

    def around(self, prefix: str) -> AbstractContextManager[object]:
        """Return such a range, to be entered. Never raise.

        ``record_function`` is an operation, so a dispatch mode inside the step would
        see it, such as the one of selective checkpointing. ``_RecordFunctionFast`` is
        none.
        """
        # Broad on purpose: this runs inside the user's step. A marker that is lost
        # costs a line number, an error would end the step.
        with suppress(Exception):
            from torch._C._profiler import _RecordFunctionFast

            marked: AbstractContextManager[object] = _RecordFunctionFast(
                self._name(prefix)
            )
            return marked
        return nullcontext()

    def _name(self, prefix: str) -> str:
        # The sync itself must be counted even if its line cannot be found.
        with suppress(Exception):
            return marker_of(*self._lines(), prefix=prefix)
        return marker_of(None, prefix=prefix)

    def _lines(self) -> tuple[Location | None, Location | None]:
        """Line of the project and, if that is another, the innermost one."""
        stack: Sequence[FrameType] = list(frames())
        if blamed(stack) is None:
            stack = self._asked_by(stack)
        return own_and_inner(self._root, stack)

    def _asked_by(self, stack: Sequence[FrameType]) -> Sequence[FrameType]:
        """Frames of the step where it waits for the thread of autograd that runs here.

        Such a thread has no frames but those that answer to the sync.
        """
        if not all(map(_answers, stack)):
            return ()
        asking = list(outwards(sys._current_frames().get(self._caller)))  # noqa: SLF001, no public question exists
        return asking if asking and is_backward(asking[0]) else ()


def _answers(frame: FrameType) -> bool:
    return torch_path(frame) is not None or frame.f_code.co_filename.startswith(OWN)
