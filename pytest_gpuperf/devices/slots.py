"""The devices that this process was given to measure on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Final

from ..model.environment import DeviceKind
from ..model.environment import DeviceSlot
from .cuda.device import fingerprint_of
from .cuda.nvml import gpu_count
from .scripted import ScriptedDevice


VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"

MIG: Final = "MIG-"
"""A process sees one MIG instance, however many its list names."""


def slots_of(kind: DeviceKind, script: str | None) -> tuple[DeviceSlot, ...]:
    """Return where tests can be measured side by side; initialises CUDA."""
    if kind is DeviceKind.CUDA:
        import torch

        return cuda_slots(torch.cuda, os.environ.get(VISIBLE_DEVICES))
    if kind is DeviceKind.CPU:
        return (DeviceSlot(lock="cpu"),)
    if kind is DeviceKind.SCRIPTED and script is not None:
        return ScriptedDevice.read(script, run=0).slots()
    return (DeviceSlot(),)


def cuda_slots(cuda: Any, visible: str | None) -> tuple[DeviceSlot, ...]:
    """Return a slot per GPU of the first one's model, by its place in *visible*.

    Another model has a baseline of its own: it is not measured on beside this one.
    """
    named = entries_of(visible)
    if named and named[0].startswith(MIG):
        return tuple(DeviceSlot(visible=entry, lock=entry) for entry in named)
    found = tuple(_like_the_first(cuda, named))
    return (
        found
        if len(found) > 1
        else (DeviceSlot(lock=found[0].lock, board=found[0].board),)
    )


def visible_gpu_count(visible: str | None) -> int:
    """Return how many GPUs *visible* leaves to see; CUDA is not touched."""
    return gpu_count() if visible is None else len(entries_of(visible))


def entries_of(visible: str | None) -> list[str]:
    """Name the GPUs that *visible*, the value of ``CUDA_VISIBLE_DEVICES``, lists."""
    return [entry.strip() for entry in (visible or "").split(",") if entry.strip()]


def _like_the_first(cuda: Any, named: Sequence[str]) -> Iterator[DeviceSlot]:
    model = cuda.get_device_name(0)
    for index in range(cuda.device_count()):
        if cuda.get_device_name(index) == model:
            uuid = str(cuda.get_device_properties(index).uuid)
            yield DeviceSlot(
                visible=named[index] if named else str(index),
                lock=f"GPU-{uuid.removeprefix('GPU-')}",
                board=fingerprint_of(uuid),
            )
