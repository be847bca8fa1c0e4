"""The devices that this process was given to measure on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from ..model.environment import DeviceKind, DeviceSlot
from . import scripted_device
from .cuda.device import fingerprint_of
from .cuda.nvml import gpu_count


VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"

HIP_DEVICES: Final = "HIP_VISIBLE_DEVICES"
"""On ROCm this one is obeyed where both are set."""

MIG: Final = "MIG-"
"""A process sees one MIG instance, however many its list names."""


def slots_of(kind: DeviceKind, script: str | None) -> tuple[DeviceSlot, ...]:
    """Return where tests can be measured; initialises CUDA."""
    if kind is DeviceKind.CUDA:
        import torch

        return cuda_slots(torch.cuda, obeyed(torch, os.environ))
    if kind is DeviceKind.CPU:
        return (DeviceSlot(lock="cpu"),)
    if kind is DeviceKind.SCRIPTED and script is not None:
        slots: tuple[DeviceSlot, ...] = scripted_device().read(script, run=0).slots()
        return slots
    return (DeviceSlot(),)


def cuda_slots(cuda: Any, visible: str | None) -> tuple[DeviceSlot, ...]:
    """Return a slot per GPU of the first one's model, by its place in *visible*.

    Another model has a baseline of its own: it is not measured on together with this one.
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
    """Name the GPUs that *visible*, the value of ``CUDA_VISIBLE_DEVICES``, lists.

    As CUDA does, it stops at the first entry that can be none: ``-1``, or nothing.
    """
    entries = (entry.strip() for entry in (visible or "").split(","))
    return list(takewhile(lambda entry: entry and not entry.startswith("-"), entries))


def obeyed(torch: Any, environ: Mapping[str, str]) -> str | None:
    """Return the list of GPUs that *torch* obeys, ``None`` if it sees all of them."""
    visible = environ.get(VISIBLE_DEVICES)
    return environ.get(HIP_DEVICES, visible) if torch.version.hip else visible


def seeing(entry: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that is to see the GPU of *entry* alone."""
    names = [VISIBLE_DEVICES, *([HIP_DEVICES] if HIP_DEVICES in environ else [])]
    return dict.fromkeys(names, entry)


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
