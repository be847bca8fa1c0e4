"""The energy of steps of known length on a GPU that takes a known power."""

from __future__ import annotations

import pytest
from virtual_gpu import gpu_works
from virtual_gpu import steady_ms

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject


pytestmark = [pytest.mark.gpu, pytest.mark.stub]


@pytest.mark.parametrize("kernel_ms", [3, 20, 400])
def test_a_step_takes_its_time_in_joules_of_the_power(
    monkeypatch: pytest.MonkeyPatch, kernel_ms: int
) -> None:
    monkeypatch.setenv("GPUPERF_STUB_WATTS", "500")

    def step() -> None:
        gpu_works(kernel_ms)

    found = measure(
        CudaDevice.open(),
        Subject(step=step),
        MeasurePlan(test="t", seconds=60, asked={"energy_mj"}),
    ).measurement

    # A leap of 20 ms in a second of steps.
    wanted = 500 * steady_ms(step)
    assert found.times["energy_mj"].q50 == pytest.approx(wanted, rel=0.03)
