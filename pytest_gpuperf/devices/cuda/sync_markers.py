"""Marks the line of each wait for the GPU in the trace, where ``measure.trace`` reads it."""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any
from typing import Final
from typing import Protocol

from ...model.finding import Location
from ..allow_sync import marker_of
from ..base import LATE_MARKER
from ..base import SYNC_MARKER
from ..source_lines import OWN
from ..source_lines import blamed
from ..source_lines import blamed_below
from ..source_lines import frames
from ..source_lines import is_backward
from ..source_lines import outwards
from ..source_lines import torch_path


# Torch's callbacks at each synchronisation, switched on and off again.
#
# C++ calls them right before ``cuda{Stream,Device,Event}Synchronize`` and before a copy
# that is waited for, on the thread that waits. The API is private and has no way back:
# ``torch._C._activate_gpu_trace`` works once per process, and from then on each
# allocation, each free and each event enters Python as well. So the flag is cleared
# that C++ asks before each of them (c10/core/impl/GPUTrace.h of torch 2.6 to 2.13).

REGISTRIES: Final = tuple(
    f"{kind}SynchronizationCallbacks" for kind in ("Stream", "Device", "Event")
)
"""In ``torch.cuda._gpu_trace``."""

FLAG: Final = "_ZN3c104impl8GPUTrace9haveStateE"
"""The symbol of ``c10::impl::GPUTrace::haveState``, a ``bool``."""


class Switch(Protocol):
    """``value`` says whether callbacks are made."""

    value: bool


def switch_of(torch: Any) -> Switch | None:
    """Return what silences the callbacks; ``None`` without callbacks or a way back."""
    if not hasattr(torch._C, "_activate_gpu_trace"):  # noqa: SLF001, there is no public one
        return None
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    # A static build has no such library, and another release may not export the symbol.
    with suppress(OSError, ValueError):
        return ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), FLAG)
    return None


@contextmanager
def called_back(
    torch: Any, switch: Switch, notify: Callable[[], None]
) -> Iterator[None]:
    """Call *notify* right before each synchronisation, on whatever thread."""
    trace = importlib.import_module("torch.cuda._gpu_trace")

    def answer(*_handle: object) -> None:
        notify()

    with ExitStack() as undo:
        for name in REGISTRIES:
            registry = getattr(trace, name)
            registry.add_callback(answer)
            undo.callback(registry.callback_list.remove, answer)
        # Registered last, so undone first: the flag is off before the callbacks are
        # removed, and no thread walks a list that shrinks.
        undo.callback(setattr, switch, "value", switch.value)
        # It works once per process; every later time only the flag switches callbacks
        # on.
        torch._C._activate_gpu_trace()  # noqa: SLF001
        switch.value = True
        yield


# Torch's warnings at synchronisations, heard and not shown.
#
# They miss what waits outside of ``memcpy_and_sync`` and ``stream_synchronize``
# (c10/cuda/CUDAFunctions.h), ``torch.cuda.synchronize`` and ``Event.synchronize`` among
# it. They come after the wait: torch keeps them until the operation returns to Python
# (``PyWarningHandler``, torch/csrc/Exceptions.h). They leave nothing behind.

MESSAGE: Final = "called a synchronizing CUDA operation"
ABOUT_THE_MODE: Final = "Synchronization debug mode is a prototype"
"""What torch warns of once, when the mode is switched on."""


@contextmanager
def warned(torch: Any, notify: Callable[[], None]) -> Iterator[None]:
    """Call *notify* after each operation, once for each wait that torch warns of.

    Entered around the step and not before: pytest and others have contexts of
    their own for warnings. What else is warned of goes its usual way.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def hear(message: Warning | str, *where: Any, **more: Any) -> None:
            if not str(message).startswith(MESSAGE):
                show(message, *where, **more)
            elif not _is_replayed():
                notify()

        # By default Python shows a warning once per line, and each wait counts.
        warnings.filterwarnings("always", message=MESSAGE)
        warnings.filterwarnings("ignore", message=ABOUT_THE_MODE)
        warnings.showwarning = hear
        try:
            torch.cuda.set_sync_debug_mode("warn")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


def _is_replayed() -> bool:
    """Whether the waits were other threads': autograd keeps what they warn of."""
    inner = (f for f in frames() if not _only_warns(f.f_code.co_filename))
    return any(is_backward(frame) for frame in list(inner)[:1])


def _only_warns(file: str) -> bool:
    return file.startswith(OWN) or file.endswith("warnings.py")


def lines_marked(
    torch: Any, *, disposable: bool, root: str = ""
) -> AbstractContextManager[object]:
    """Mark each wait inside the context that torch reports, with the running line.

    The line is the innermost one of the project below *root*, and beside it the
    innermost one outside of torch if that is another.

    Torch's callbacks report more waits than its warnings do. They come before the wait,
    the warnings after the operation has returned. Callbacks are used if the process is
    *disposable*, that is, ends with its measurements, and if they can be silenced again
    for the times of the next call. Otherwise the warnings are used, which leave nothing
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
        """Put the marker into the trace. Never raise.

        ``record_function`` is an operation, so a dispatch mode inside the step would
        see it, such as the one of selective checkpointing. ``_RecordFunctionFast`` is
        none.
        """
        # Broad on purpose: this runs inside the user's step, from C++ or from a
        # warning. A marker that is lost costs a line number, an error would end the
        # step.
        with suppress(Exception):
            from torch._C._profiler import _RecordFunctionFast

            with _RecordFunctionFast(self._name()):
                pass

    def _name(self) -> str:
        # The wait itself must be counted even if its line cannot be found.
        with suppress(Exception):
            return marker_of(*self._lines(), prefix=self._prefix)
        return marker_of(None, prefix=self._prefix)

    def _lines(self) -> tuple[Location | None, Location | None]:
        """Line of the project and, if that is another, the innermost one."""
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
