"""Fixed kernels: their times describe the machine and not the user's code."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from typing import Final

from ..model.environment import Capability
from ..model.environment import DeviceKind
from ..model.metrics import SENTINEL_COPY
from ..model.metrics import SENTINEL_GEMM
from ..model.metrics import SENTINEL_LAUNCH
from .base import Kernel
from .base import MeasuringDevice
from .base import Step


SENTINEL_LAUNCHES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes at which a kernel takes 0.2 to 2 ms on a kind of device.

    ``side`` is of the square matrices of a product, ``elements`` of 4 bytes are
    copied ``copies`` times.
    """

    side: int
    elements: int
    copies: int


ON_CPU: Final = Sizes(side=256, elements=2**20, copies=2)

ON_CUDA: Final = Sizes(side=2048, elements=2**23, copies=8)
"""The copied buffers exceed the second level cache of any GPU of today."""


@contextmanager
def torch_sentinels(
    torch: Any, device: str, sizes: Sizes
) -> Iterator[Mapping[str, Kernel]]:
    """Lend the kernels on *device*; nothing is drawn from torch's random generators.

    A GPU's memory is handed back at the end: it must not count as the step's.
    """
    kernels = _kernels(torch, device, sizes)
    try:
        with torch.no_grad():
            yield kernels
    finally:
        # The caller still has a reference to this dict, and its closures own the
        # buffers. Freed, synchronised and emptied in this order, or the cache would
        # keep them.
        kernels.clear()
        if device == "cuda":
            torch.cuda.synchronize()
            _forget_workspaces(torch)
            torch.cuda.empty_cache()


def _kernels(torch: Any, device: str, sizes: Sizes) -> dict[str, Kernel]:
    def ones(*shape: int) -> Any:
        return torch.ones(shape, dtype=torch.float32, device=device)

    left, right, product = (ones(sizes.side, sizes.side) for _ in range(3))
    source, target, tiny = ones(sizes.elements), ones(sizes.elements), ones(1)

    def copy() -> None:
        for _ in range(sizes.copies):
            target.copy_(source)

    def launch() -> None:
        for _ in range(SENTINEL_LAUNCHES):
            tiny.zero_()

    return {
        SENTINEL_GEMM.name: lambda: torch.mm(left, right, out=product),
        SENTINEL_COPY.name: copy,
        SENTINEL_LAUNCH.name: launch,
    }


def _forget_workspaces(torch: Any) -> None:
    """Free what cuBLAS keeps allocated, where torch can: it is not the step's."""
    # cuBLAS allocates a workspace at the first product and keeps it: it would count in
    # the peak of a step that needs none.
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # noqa: SLF001  no public name
    if clear is not None:
        clear()


# A training step that belongs to nobody, to see how a machine's times scatter.


def fixed_step(device: MeasuringDevice) -> Step:
    """Return a step of a small classifier: about 1 ms on a core, and on a GPU.

    A device that plays its times needs no work.
    """
    if device.kind is DeviceKind.SCRIPTED:
        return lambda: None
    import torch
    from torch import nn

    width, rows = (2048, 512) if device.kind.has(Capability.KERNELS) else (256, 64)
    layers = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = nn.Sequential(*layers).to(device.torch_device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows_of_ones = torch.ones(rows, width, device=device.torch_device)
    labels = torch.zeros(rows, dtype=torch.long, device=device.torch_device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows_of_ones), labels).backward()
        optimizer.step()

    return step
