"""Jobs of ``gpuperf doctor`` inside a measuring process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Final

from ..devices import default_kind
from ..devices import open_device
from ..devices.base import Device
from ..devices.base import MeasuringDevice
from ..devices.machine import circumstances_of
from ..devices.sentinels import fixed_step
from ..devices.slots import slots_of
from ..errors import ErrorId
from ..errors import GpuperfError
from ..errors import PreflightError
from ..errors import UsageError
from ..measure.phases import measure
from ..measure.plan import MeasurePlan
from ..measure.step import Subject
from ..model.checkup import CheckupRequest
from ..model.checkup import Examination
from ..model.codec import decode
from ..model.codec import encode


FIXED_STEP: Final = "the fixed step"
"""Used as the name of the test."""

NO_SENSITIVITY: Final = "the simulated GPU has no clock, so there is no step to try"


def examine(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Look at the device and run nothing on it; a usage error is an answer too."""
    request = decode(CheckupRequest, raw)
    try:
        device = _opened(request)
        found = Examination(
            environment=device.environment(),
            unmeasured=device.unmeasurable,
            refusal=_refusal(device),
            disturbance=device.disturbance(),
            circumstances=tuple(circumstances_of(device.kind)),
            slot=slots_of(device.kind, request.script)[0],
        )
    except GpuperfError as error:
        return {"error": str(error)}
    return {"examination": encode(found)}


def try_step(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the fixed step as a test's step is."""
    request = decode(CheckupRequest, raw)
    try:
        device = _timing(_opened(request))
        subject = Subject(step=fixed_step(device))
        plan = MeasurePlan(test=FIXED_STEP, seconds=request.seconds)
        measurement = measure(device, subject, plan).measurement
    except GpuperfError as error:
        return {"error": str(error)}
    return {"trial": encode(measurement)}


def _opened(request: CheckupRequest) -> Device:
    kind = request.device or default_kind()
    return open_device(kind, request.script, request.number)


def _timing(device: Device) -> MeasuringDevice:
    if device.measuring is None:
        raise UsageError(NO_SENSITIVITY, ErrorId.GP413)
    return device.measuring


def _refusal(device: Device) -> str | None:
    try:
        device.preflight()
    except PreflightError as error:
        return str(error)
    return None
