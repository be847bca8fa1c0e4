"""Devices: one protocol and its kinds, opened by name in the measuring process."""

from __future__ import annotations

from ..errors import UsageError
from ..model.environment import PRETEND_GIB
from ..model.environment import DeviceKind
from .pretend.device import PretendDevice
from .protocol import Device


def open_device(  # noqa: PLR0913, each is a word of what is opened
    kind: DeviceKind,
    script: str | None = None,
    run: int = 0,
    root: str = "",
    *,
    disposable: bool = False,
    pretend_gib: float = PRETEND_GIB,
) -> Device | PretendDevice:
    """Open a device; torch is imported here and not before.

    *script* is the path of the scripted device's JSON, *run* the number of the run it
    plays; below *root* stands the project whose lines findings name. A
    *disposable* process ends with its measurements, so that they may leave something
    behind. The pretend GPU has *pretend_gib* of memory. Raises ``UsageError`` where the machine has no such device.
    """
    if kind is DeviceKind.CUDA:
        from .cuda import CudaDevice

        return CudaDevice.open(disposable=disposable, root=root)
    if kind is DeviceKind.PRETEND:
        return PretendDevice(root, pretend_gib)
    if kind is DeviceKind.CPU:
        from .cpu import CpuDevice

        return CpuDevice(root=root)
    from .scripted import ScriptedDevice

    if script is None:
        msg = "--gpuperf-device=scripted: set GPUPERF_SCRIPT to the script's JSON file"
        raise UsageError(msg)
    return ScriptedDevice.read(script, run)


def default_kind() -> DeviceKind:
    """Return the device used where none is named: ``cuda``, ``pretend`` without one."""
    import torch

    return DeviceKind.CUDA if torch.cuda.is_available() else DeviceKind.PRETEND


def torch_device_for_plain_runs() -> str:
    """Return what an unmeasured step runs on: ``cuda`` where there is one, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
