"""The pretend GPU: unmodified CUDA code runs without one, and its waits are recorded.

    with pretend_gpu(root="src") as gpu:
        gpu.begin_step()
        step()
        audit = gpu.end_step()

A tensor "on the GPU" is a ghost (``tensor``): Python sees ``cuda:0``, torch's core sees
a wrapper on a device of its own, and inside is a real tensor on the CPU, so values and
control flow are real. Every operation on ghosts passes ``dispatch``, where the table of
``sync_rules`` says whether it would make the host wait on CUDA.

Begin with:

- ``gpu.PretendGpu``: the simulated GPU of one process
- ``dispatch.observe``: each operation on it
- ``sync_rules.SyncRule``: which operation waits, with the evidence
- ``allocator.CachingAllocator``: torch's allocator, predicted
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .gpu import PretendGpu


def pretend_gpu(
    root: str | None = None,
    *,
    values: bool | None = None,
    whole_process: bool = False,
) -> AbstractContextManager[PretendGpu]:
    """Pretend, inside the context, that this machine has one CUDA device.

    Tensors on it have *values* as long as this machine's memory lasts (``None``),
    always (``True``) or never (``False``). Without values, sizes and lifetimes are
    exact, and what is read is a guess. ``StepError`` is raised if values that were
    demanded do not fit.

    Findings name the innermost line below the directory *root* (the working directory
    by default) beside the innermost line outside of torch. torch is imported on entry.
    Contexts nest; patches are undone when the outermost one is left. If that is the end of
    the *whole process*, less of torch has to be imported.
    """
    # Late: this package is imported by modules that run where torch is not loaded.
    from .gpu import entered

    return entered(root, values, whole_process=whole_process)
