"""The simulated GPU: unmodified CUDA code runs without one, and its syncs are recorded.

    with simulated_gpu(root="src") as gpu:
        gpu.begin_step()
        step()
        audit = gpu.end_step()

A tensor "on the GPU" is a GPU tensor (``tensor``): Python sees ``cuda:0``, torch's core sees
a wrapper on a device of its own, and inside is a real tensor on the CPU, so values and
control flow are real. Every operation on GPU tensors passes ``dispatch``, where the table of
``sync_rules`` says whether it would make the host wait on CUDA.

The modules of this folder know each other well, and no other room imports them: what it
may import is what this one offers, ``simulated_gpu`` and the names of ``BEHIND``.

Begin with:

- ``gpu.SimulatedGpu``: the simulated GPU of one process
- ``dispatch.observe``: each operation on it
- ``sync_rules.SyncRule``: which operation waits, with the evidence
- ``allocator.CachingAllocator``: torch's allocator, predicted
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Final


if TYPE_CHECKING:
    from .allocator import (
        settings_against_allocated as settings_against_allocated,
        settings_against_reserved as settings_against_reserved,
    )
    from .device import SimulatedDevice as SimulatedDevice
    from .errors import (
        NeedsGpuError as NeedsGpuError,
        without_own_frames as without_own_frames,
    )
    from .gpu import SimulatedGpu as SimulatedGpu
    from .memory_watch import (
        MemoryAudit as MemoryAudit,
        ProgramMemory as ProgramMemory,
        unrecorded as unrecorded,
        watching_program as watching_program,
    )
    from .program_audit import ProgramAudit as ProgramAudit
    from .suite_watch import (
        SimulatedSuite as SimulatedSuite,
        watching_suite as watching_suite,
    )
    from .tensor_values import BACKING as BACKING


BEHIND: Final = {
    # The device of a run.
    "SimulatedDevice": "device",
    "NeedsGpuError": "errors",
    "without_own_frames": "errors",
    # The syncs of a program.
    "SimulatedGpu": "gpu",
    "ProgramAudit": "program_audit",
    # The memory of a program, and of a step.
    "ProgramMemory": "memory_watch",
    "watching_program": "memory_watch",
    "MemoryAudit": "memory_watch",
    "unrecorded": "memory_watch",
    "settings_against_allocated": "allocator",
    "settings_against_reserved": "allocator",
    "BACKING": "tensor_values",
    # Both, of a suite.
    "SimulatedSuite": "suite_watch",
    "watching_suite": "suite_watch",
}
"""What others may import from here, and its module, which is imported when it is asked for:
most of them import torch, which is not everywhere."""

if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in BEHIND:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(import_module(f".{BEHIND[name]}", __name__), name)


def simulated_gpu(
    root: str | None = None,
    *,
    values: bool = True,
) -> AbstractContextManager[SimulatedGpu]:
    """Simulated, inside the context, that this machine has one CUDA device.

    Tensors on it have *values* as long as this machine's memory lasts, or never. Without
    values, sizes and lifetimes are exact, and what is read is a guess.

    Findings name the innermost line below the directory *root* (the working directory
    by default) and the innermost line outside of torch. torch is imported on entry.
    Contexts nest; patches are undone when the outermost one is left.
    """
    # Late: this package is imported by modules that run where torch is not loaded.
    from .gpu import entered

    return entered(root, values=values)
