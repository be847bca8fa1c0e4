"""Runs tests for what their steps train: there is no clock, and nothing is counted."""

from __future__ import annotations

from dataclasses import replace

from ..devices.base import Device
from ..measure.step import Subject
from ..model.run import TestResult, nodeid_of
from ..model.training import TrainingRecord
from . import draws
from .fixture import FixtureCall
from .measurer import call_key
from .unmeasured import PlainRun


class TrainingPass(PlainRun):
    """Stands behind the fixture on *device*: ``records`` has each call's first steps."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.records: dict[str, TrainingRecord] = {}

    def torch_device(self) -> str:
        return self._device.torch_device

    def measure(self, call: FixtureCall, subject: Subject) -> object:
        # Not at the top: a plain run imports this module's neighbours, without torch.
        from ..compare_steps.training_record import record_steps

        nodeid = call.item.nodeid
        taken = [key for key in self.records if nodeid_of(key) == nodeid]
        key = call_key(nodeid, call.name, taken=taken, comparisons=())
        emulating = self._device.emulating
        record, result = record_steps(subject, simulated=emulating is not None)
        missing = (emulating and emulating.gave_up_values) or ""
        self.records[key] = replace(record, unseeded=draws.are_drawn(), missing=missing)
        return result

    def added_to(self, result: TestResult, test: str) -> TestResult:  # noqa: ARG002
        return result
