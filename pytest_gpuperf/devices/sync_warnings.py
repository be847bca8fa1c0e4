"""Torch's warnings at synchronisations, heard and not shown.

They miss what waits outside of ``memcpy_and_sync`` and ``stream_synchronize``
(c10/cuda/CUDAFunctions.h), ``torch.cuda.synchronize`` and ``Event.synchronize`` among
it. They come after the wait: torch keeps them until the operation returns to Python
(``PyWarningHandler``, torch/csrc/Exceptions.h). They leave nothing behind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from typing import Final

from .call_site import OWN
from .call_site import frames
from .call_site import is_backward


MESSAGE: Final = "called a synchronizing CUDA operation"


@contextmanager
def warned(torch: Any, tell: Callable[[], None]) -> Iterator[None]:
    """Call *tell* after each operation, once for each wait that torch warns of.

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
                tell()

        warnings.filterwarnings("always", message=MESSAGE)
        warnings.showwarning = hear
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


def _is_replayed() -> bool:
    """Whether the waits were other threads': autograd keeps what they warn of."""
    inner = (f for f in frames() if not _only_warns(f.f_code.co_filename))
    return any(is_backward(frame) for frame in list(inner)[:1])


def _only_warns(file: str) -> bool:
    return file.startswith(OWN) or file.endswith("warnings.py")
