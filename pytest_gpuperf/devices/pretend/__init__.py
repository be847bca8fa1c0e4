"""The pretend GPU: unmodified CUDA code runs without one, and what would wait is written down.

    with pretend_gpu(root="src") as gpu:
        gpu.begin_step()
        step()
        audit = gpu.end_step()

A tensor "on the GPU" is a ghost (``ghost``): to Python it says ``cuda:0``, to torch it
is a wrapper on a device of its own, and inside is a real tensor on the CPU, so that
values and control flow are real. Every operation on ghosts passes ``execution``, where
the table of ``rules`` says whether it would make the host wait on CUDA.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .gpu import PretendGpu


def pretend_gpu(
    root: str | None = None, *, values: bool | None = None
) -> AbstractContextManager[PretendGpu]:
    """Pretend, inside the context, that this machine has one CUDA device.

    Tensors on it hold *values* as long as this machine's memory lasts, or always, or
    (``False``) never: then sizes and lifetimes are exact, and what is read is a guess.
    ``StepError`` is raised where values that must be held would not fit.

    Findings name the innermost line below the directory *root* (the working directory
    where none is named) beside the innermost line outside of torch. torch is imported
    on entry. Contexts nest; what was patched is undone when the outermost one is left.
    """
    from .gpu import entered

    return entered(root, values)
