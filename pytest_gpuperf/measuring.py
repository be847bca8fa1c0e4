"""What stands behind the fixture in a measuring process: every call, by test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .devices.pretend.device import PretendDevice
from .devices.protocol import Device
from .errors import StepError
from .limits import parse_budget
from .marks import budgets_of
from .marks import tolerances_of
from .model.finding import Location
from .model.measurement import Measurement
from .model.run import Call
from .probes.subject import Subject


if TYPE_CHECKING:
    from .probes.phases import Measured


class Measuring:
    """Measures on an open device and keeps every call by test."""

    def __init__(
        self,
        device: Device | PretendDevice,
        seconds: float,
        recordings: Path | None = None,
    ) -> None:
        self._device = device
        self._seconds = seconds
        self._recordings = recordings
        self._calls: dict[str, list[Call]] = {}

    def torch_device(self) -> str:
        return self._device.torch_device

    def calls_of(self, test: str) -> tuple[Call, ...]:
        return tuple(self._calls.get(test, ()))

    def last(self, item: pytest.Item) -> Measurement | None:
        calls = self._calls.get(item.nodeid)
        return calls[-1].measurement if calls else None

    def measure(
        self,
        item: pytest.Item,
        subject: Subject,
        name: str | None,
        budget: Mapping[str, object],
    ) -> object:
        calls = self._calls.setdefault(item.nodeid, [])
        test = _key(item.nodeid, name, [call.measurement.test for call in calls])
        measured = _measured(self._device, subject, test, self._seconds)
        measurement = self._explained(measured.measurement, subject)
        calls.append(
            Call(
                measurement=_below(item.config.rootpath, measurement),
                budgets=(parse_budget(budget), *budgets_of(item)),
                tolerances=tolerances_of(item),
            )
        )
        return measured.result

    def _explained(self, measurement: Measurement, subject: Subject) -> Measurement:
        """Add what a step did with memory, where this run is to record that."""
        if self._recordings is None or isinstance(self._device, PretendDevice):
            return measurement
        from .probes.snapshot import explained

        return explained(self._device, subject, measurement, self._recordings)


def _measured(
    device: Device | PretendDevice, subject: Subject, test: str, seconds: float
) -> Measured:
    if isinstance(device, PretendDevice):
        from .probes.audit import audit

        return audit(device, subject, test=test, seconds=seconds)
    from .probes.phases import measure

    return measure(device, subject, test=test, seconds=seconds)


def _key(nodeid: str, name: str | None, taken: list[str]) -> str:
    """Return the baseline's key of a call: the node id, told apart by name or number."""
    key = f"{nodeid}#{name}" if name else nodeid
    if key not in taken:
        return key
    if name:
        msg = f"gpuperf(step, name={name!r}): this test has a call of that name already"
        raise StepError(msg)
    return f"{nodeid}#{len(taken) + 1}"


def _below(root: Path, measurement: Measurement) -> Measurement:
    """Name the files of findings from *root* on, as node ids do, where they are in it."""
    return replace(
        measurement,
        findings=tuple(
            replace(
                finding,
                location=_relative(root, finding.location),
                innermost=_relative(root, finding.innermost),
                forward=_relative(root, finding.forward),
            )
            for finding in measurement.findings
        ),
        snapshot=_relative_path(root, measurement.snapshot),
    )


def _relative(root: Path, location: Location | None) -> Location | None:
    if location is None:
        return None
    return replace(location, file=_relative_path(root, location.file))


def _relative_path(root: Path, path: str) -> str:
    if not Path(path).is_relative_to(root):
        return path
    return Path(path).relative_to(root).as_posix()
