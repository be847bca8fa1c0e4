"""Devices: one protocol and its kinds, opened by name in the measuring process.

Begin with:

- ``base.Device``: what all kinds share; what has a clock is a ``MeasuringDevice``
- ``cuda.device.CudaDevice``: a GPU
- ``cpu.CpuDevice``: the host
- ``simulated.device.SimulatedDevice``: the simulated GPU
- ``machine.slots_of``: the GPUs that tests can be measured on
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..errors import ErrorId, UsageError
from ..model.environment import SIMULATED_GIB, DeviceKind
from .base import Device
from .own_code import checkout_of
from .simulated import SimulatedDevice


def open_device(
    kind: DeviceKind,
    script: str | None = None,
    run: int = 0,
    root: str = "",
    *,
    simulated_gib: float = SIMULATED_GIB,
) -> Device:
    """Open a device; torch is imported here and not before.

    *script* is the path of the scripted device's JSON, *run* the number of the run it
    plays. Findings name lines of the checkout around *root*. The simulated GPU has
    *simulated_gib* of memory. Raises ``UsageError`` if the machine has no such device.
    """
    root = str(checkout_of(Path(root))) if root else root
    if kind is DeviceKind.CUDA:
        # Imported late: a process needs the code of one device only, and most of it
        # imports torch in its turn.
        from .cuda.device import CudaDevice

        return CudaDevice.open(root=root)
    if kind is DeviceKind.SIMULATED:
        return SimulatedDevice(root, simulated_gib)
    if kind is DeviceKind.CPU:
        from .cpu import CpuDevice

        return CpuDevice(root=root)
    if script is None:
        msg = "--gpuperf-device=scripted: set GPUPERF_SCRIPT to the script's JSON file"
        raise UsageError(msg, ErrorId.GP403)
    device: Device = scripted_device().read(script, run)
    return device


SCRIPTED_MODULE: Final = "scripted_device"
"""The module of the plugin's own tests with a device that reads its times from a script.
It is on their path, and not a part of this package."""


def scripted_device() -> Any:
    """Return the class of the scripted device; raise ``UsageError`` if it is not there."""
    try:
        return import_module(SCRIPTED_MODULE).ScriptedDevice
    except ModuleNotFoundError:
        msg = (
            f"--gpuperf-device=scripted needs {SCRIPTED_MODULE}.py of the plugin's own tests on "
            "PYTHONPATH: choose cuda, simulated or cpu"
        )
        raise UsageError(msg, ErrorId.GP403) from None


def default_kind() -> DeviceKind:
    """Return the default device: ``cuda``, or ``simulated`` on a machine without one."""
    import torch

    return DeviceKind.CUDA if torch.cuda.is_available() else DeviceKind.SIMULATED


def kind_without_torch() -> DeviceKind | None:
    """Return the default device if that is clear before torch is imported.

    A driver that knows no GPU leaves the simulated one; else torch decides.
    """
    from .cuda.nvml import gpu_count

    return None if gpu_count() else DeviceKind.SIMULATED


def torch_device_for_plain_runs() -> str:
    """Return the device of an unmeasured step: ``cuda`` if there is one, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
