"""Torch's callbacks at each synchronisation, made and silenced again.

C++ calls them right before ``cuda{Stream,Device,Event}Synchronize`` and before a copy
that is waited for, on the thread that waits. The API is private and has no way back:
``torch._C._activate_gpu_trace`` works once a process, and from then on each allocation,
each free and each event enters Python as well. So the flag is cleared that C++ asks
before each of them (c10/core/impl/GPUTrace.h of torch 2.6 to 2.13).
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import Final
from typing import Protocol


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
    with suppress(OSError, ValueError):
        return ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), FLAG)
    return None


@contextmanager
def called_back(torch: Any, switch: Switch, tell: Callable[[], None]) -> Iterator[None]:
    """Call *tell* right before each synchronisation, on whatever thread."""
    trace = importlib.import_module("torch.cuda._gpu_trace")

    def answer(*_handle: object) -> None:
        tell()

    with ExitStack() as undo:
        for name in REGISTRIES:
            registry = getattr(trace, name)
            registry.add_callback(answer)
            undo.callback(registry.callback_list.remove, answer)
        undo.callback(setattr, switch, "value", switch.value)
        torch._C._activate_gpu_trace()  # noqa: SLF001, it does something once a process
        switch.value = True
        yield
