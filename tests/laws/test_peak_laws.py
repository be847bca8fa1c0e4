"""The share of its peak that a GPU of known speed reaches with known operations."""

from __future__ import annotations

import pytest
import torch
from virtual_gpu import gpu_works
from virtual_gpu import steady_ms

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject


pytestmark = [pytest.mark.gpu, pytest.mark.stub]

SIZE = 1024
PEAK = {"bf16": 1.0}
"""TFLOP/s of a slow GPU, so that the product takes a tenth of the step at it."""


def test_known_operations_in_a_known_time_are_a_known_share_of_the_peak() -> None:
    left = torch.ones(SIZE, SIZE, dtype=torch.bfloat16, device="cuda")

    def step() -> None:
        torch.mm(left, left)
        gpu_works(20)

    device = CudaDevice.open(peak_tflops=PEAK)
    found = measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=60, asked={"mfu_pct"})
    ).measurement

    at_peak_ms = 2 * SIZE**3 / 1e12 * 1e3
    wanted = 100 * at_peak_ms / steady_ms(step)
    assert found.times["mfu_pct"].mean == pytest.approx(wanted, rel=0.01)
