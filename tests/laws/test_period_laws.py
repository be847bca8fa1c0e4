"""Waits of some steps on CUDA: a period is profiled whole."""

from __future__ import annotations

import pytest
import torch
from virtual_gpu import gpu_works

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.measurement import Measurement


pytestmark = [pytest.mark.gpu, pytest.mark.stub]


def reading_every(steps: int, period: int) -> Measurement:
    """Measure a step that reads a number in each of so many *steps*."""
    loss, numbers = torch.ones(1, device="cuda"), []

    def step() -> None:
        gpu_works(2)
        numbers.append(loss * 2)
        if len(numbers) % steps == 0:
            numbers[-1].item()
            numbers[:] = [loss] * steps

    subject = Subject(step=step, period=period)
    return measure(
        CudaDevice.open(), subject, MeasurePlan(test="t", seconds=600)
    ).measurement


def test_a_wait_in_every_twelfth_step_is_in_each_period_once() -> None:
    found = reading_every(12, period=24)

    (wait,) = [f for f in found.findings if f.kind is FindingKind.SYNC]
    assert found.exact["period_syncs"] == 2
    assert max(found.exact["syncs"], found.exact.get("occasional_syncs", 0)) == 1
    assert wait.location is not None
    assert wait.location.function == "step"
    assert wait.how_often == "1 every 12 steps"


def test_a_wait_of_each_step_is_in_all_steps_of_a_period() -> None:
    found = reading_every(1, period=24)

    assert (found.exact["syncs"], found.exact["period_syncs"]) == (1, 24)
    assert "occasional_syncs" not in found.exact
    assert "period_copies" not in found.exact
