"""All that measuring on this machine depends on."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.checkup import Circumstance
from ..model.environment import DeviceKind
from .gpu_circumstances import gpu_circumstances
from .gpu_circumstances import no_gpu
from .host_circumstances import host_circumstances
from .nvml import open_nvml


def circumstances_of(kind: DeviceKind) -> Iterator[Circumstance]:
    """Tell what this machine has for a real device of that *kind*."""
    if kind is DeviceKind.SCRIPTED:
        return
    import torch

    if torch.cuda.is_available():
        board = torch.cuda.get_device_properties(torch.cuda.current_device())
        yield from gpu_circumstances(torch, open_nvml(str(board.uuid)))
    else:
        yield no_gpu(torch)
    yield from host_circumstances(torch.cuda.device_count())
