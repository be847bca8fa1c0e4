"""Kernels of triton, which only a GPU runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from typing import Any
from typing import Final

from .late_import import when_loaded
from .patches import Patch
from .patches import patched
from .recorder import WATCH


LAUNCHERS: Final = {
    "triton.runtime.jit": "JITFunction",
    "triton.runtime.autotuner": "Autotuner",
}
"""Classes whose ``run`` launches a kernel, by their module."""


@contextmanager
def skipped_kernels() -> Iterator[None]:
    """Launch nothing and say so, also where triton is imported later."""
    with ExitStack() as undo:

        def skip_launches(module: Any) -> None:
            launcher = getattr(module, LAUNCHERS[module.__name__])
            undo.enter_context(patched([Patch(launcher, "run", skip)]))

        for name in LAUNCHERS:
            undo.enter_context(when_loaded(name, skip_launches))
        yield


def skip(kernel: Any, *_: object, **__: object) -> None:
    """``run`` of a kernel or of what picks the best of its configurations."""
    named = getattr(kernel, "base_fn", kernel)
    WATCH.leave_unjudged(
        f"triton kernel {getattr(named, '__name__', 'kernel')}",
        "only a GPU runs it; its outputs are left as they were",
    )
