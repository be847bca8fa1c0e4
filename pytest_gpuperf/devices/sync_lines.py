"""The line of each wait for the GPU, marked in the trace."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextlib import suppress
from types import FrameType
from typing import Any

from ..model.finding import Location
from .call_site import OWN
from .call_site import blamed
from .call_site import blamed_below
from .call_site import frames
from .call_site import is_backward
from .call_site import outwards
from .call_site import torch_path
from .protocol import LATE_MARKER
from .protocol import SYNC_MARKER
from .sync_callbacks import called_back
from .sync_callbacks import switch_of
from .sync_marker import marker_of
from .sync_warnings import warned


def lines_marked(
    torch: Any, *, disposable: bool, root: str = ""
) -> AbstractContextManager[object]:
    """Mark each wait inside the context that torch tells of, with the line at work.

    The line is the innermost one of the project below *root*, and beside it the
    innermost one outside of torch where that is another.

    Torch's callbacks tell of more waits than its warnings do, and they come before the
    wait, the warnings when the operation has returned. They are used where the process
    is *disposable*, that is, ends with its measurements, and where they can be silenced
    again for the times of the next call; else the warnings are, which leave nothing
    behind.

    A callback's marker takes the host some microseconds right before a wait: it makes
    the wait shorter, if anything. So lines and blocked times come from the same
    profiled steps, and no wait of one pass has to be found again in another. The times
    of a step come from earlier phases, in which nothing of this is there.
    """
    switch = switch_of(torch) if disposable else None
    if switch is None:
        return warned(torch, LineMarker(LATE_MARKER, root).mark)
    return called_back(torch, switch, LineMarker(SYNC_MARKER, root).mark)


class LineMarker:
    """Puts an empty range with the line at work into the trace of the running thread.

    Its name begins with *prefix*. It is made on the thread that runs the steps.
    """

    def __init__(self, prefix: str, root: str = "") -> None:
        self._prefix = prefix
        self._root = root
        self._caller = threading.get_ident()

    def mark(self) -> None:
        """Never raise: a question about a step must not end it.

        ``record_function`` is an operation, which a dispatch mode inside the step would
        be shown, as that of selective checkpointing. This is none.
        """
        with suppress(Exception):
            from torch._C._profiler import _RecordFunctionFast

            with _RecordFunctionFast(self._name()):
                pass

    def _name(self) -> str:
        with suppress(Exception):
            return marker_of(*self._lines(), prefix=self._prefix)
        return marker_of(None, prefix=self._prefix)

    def _lines(self) -> tuple[Location | None, Location | None]:
        """Line of the project and, where that is another, the innermost one."""
        stack: Sequence[FrameType] = list(frames())
        innermost = blamed(stack)
        if innermost is None:
            stack = self._asked_by(stack)
            innermost = blamed(stack)
        project = blamed_below(self._root, stack)
        if project is None or project == innermost:
            return innermost, None
        return project, innermost

    def _asked_by(self, stack: Sequence[FrameType]) -> Sequence[FrameType]:
        """Frames of the step where it waits for the thread of autograd that runs here.

        Such a thread has no frames but those that answer to the wait.
        """
        if not all(map(_answers, stack)):
            return ()
        asking = list(outwards(sys._current_frames().get(self._caller)))  # noqa: SLF001, no public question exists
        return asking if asking and is_backward(asking[0]) else ()


def _answers(frame: FrameType) -> bool:
    return torch_path(frame) is not None or frame.f_code.co_filename.startswith(OWN)
