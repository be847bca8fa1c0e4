"""What a measuring process does for ``gpuperf doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Final

from ..devices import default_kind
from ..devices import open_device
from ..devices.circumstances import circumstances_of
from ..devices.pretend.device import PretendDevice
from ..devices.protocol import Device
from ..devices.seats import seats_of
from ..errors import GpuperfError
from ..errors import PreflightError
from ..errors import UsageError
from ..model.checkup import CheckupRequest
from ..model.checkup import Examination
from ..model.checkup import Trial
from ..model.codec import decode
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..probes.fixed_step import fixed_step
from ..probes.phases import measure
from ..probes.subject import Subject


FIXED_STEP: Final = "the fixed step"
"""Stands for the name of a test."""

NO_CLOCK: Final = "the pretend device has no clock, so there is no step to try"


def examine(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Look at the device and run nothing on it; a usage error is an answer too."""
    request = decode(CheckupRequest, raw)
    try:
        kind = request.device or default_kind()
        if kind is DeviceKind.PRETEND:
            return {"examination": encode(_pretend())}
        device = _opened(request)
        found = Examination(
            environment=device.environment(),
            unmeasured=device.unmeasurable,
            refusal=_refusal(device),
            disturbance=device.disturbance(),
            circumstances=tuple(circumstances_of(device.kind)),
            seat=seats_of(device.kind, request.script)[0],
        )
    except GpuperfError as error:
        return {"error": str(error)}
    return {"examination": encode(found)}


def _pretend() -> Examination:
    """Look at the device that stands in where there is no CUDA device."""
    device = PretendDevice(root="")
    return Examination(
        environment=device.environment(),
        unmeasured=device.unmeasurable,
        circumstances=tuple(circumstances_of(device.kind)),
    )


def try_step(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the fixed step as a test's step is, and read the clock behind it."""
    request = decode(CheckupRequest, raw)
    try:
        device = _opened(request)
        step = fixed_step(device)
        subject = Subject(step=step)
        measured = measure(device, subject, test=FIXED_STEP, seconds=request.seconds)
        step()
        device.synchronize()
        clock_mhz = device.clock_mhz()
    except GpuperfError as error:
        return {"error": str(error)}
    return {
        "trial": encode(Trial(measurement=measured.measurement, clock_mhz=clock_mhz))
    }


def _opened(request: CheckupRequest) -> Device:
    kind = request.device or default_kind()
    device = open_device(kind, request.script, request.number)
    if isinstance(device, PretendDevice):
        raise UsageError(NO_CLOCK)
    return device


def _refusal(device: Device) -> str | None:
    try:
        device.preflight()
    except PreflightError as error:
        return str(error)
    return None
