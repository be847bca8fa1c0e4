"""What the plugin says where the machine changes and the step does not."""

from __future__ import annotations

from itertools import count

import pytest
from virtual_gpu import LAUNCH_MS, MHZ, gpu_works, host_works, set_sm_mhz

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.sentinels import SENTINEL_LAUNCHES
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.measurement import Measurement


pytestmark = [pytest.mark.gpu, pytest.mark.stub]

STRANGER = 4_000_000
"""Of no process: more than Linux counts to by default."""


@pytest.fixture(autouse=True)
def same_machine_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back what a test sets."""
    monkeypatch.setenv("GPUPERF_STUB_MHZ", str(MHZ))


def measured(step: Step) -> Measurement:
    device = CudaDevice.open()
    return measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=60)
    ).measurement


def dirt(found: Measurement) -> list[str]:
    """Return why times are in doubt, but for waits for a core: those are real."""
    return [why for why in found.dirty if "for a core" not in why]


def steady() -> None:
    gpu_works(20)


def slowing(share: float, host_ms: float) -> Step:
    """Make a step whose kernel takes longer by *share* at each call."""
    calls = count()

    def step() -> None:
        host_works(host_ms)
        set_sm_mhz(MHZ / (1 + share) ** next(calls))
        gpu_works(20)

    return step


def test_a_steady_machine_is_believed() -> None:
    found = measured(steady)

    assert dirt(found) == []
    assert found.board is not None
    assert found.board.sm_mhz == MHZ
    assert found.environment.software["power limit"] == "700 W"
    launches_ms = SENTINEL_LAUNCHES * LAUNCH_MS
    assert found.times["sentinel_launch_ms"].q50 == pytest.approx(launches_ms, rel=0.01)


@pytest.mark.parametrize(
    ("share", "host_ms"), [(0.001, 0), (0.001, 15), (0.003, 0)], ids=str
)
def test_a_clock_that_sinks_is_named(share: float, host_ms: float) -> None:
    """What the host takes before the first kernel of a round does not grow with it."""
    found = measured(slowing(share, host_ms))

    assert any("drifted" in why or "steady" in why for why in found.dirty)


def test_half_the_clock_doubles_the_step_and_the_sentinel_of_products() -> None:
    full = measured(steady)
    set_sm_mhz(MHZ / 2)
    half = measured(steady)

    ratio = {name: half.times[name].q50 / full.times[name].q50 for name in full.times}
    assert ratio["step_ms"] == pytest.approx(2, rel=0.01)
    assert ratio["sentinel_gemm_ms"] == pytest.approx(2, rel=0.05)
    assert half.board is not None
    assert half.board.sm_mhz == MHZ // 2


def test_throttling_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_STUB_THROTTLE", "0x40")

    assert "hardware thermal slowdown" in " ".join(measured(steady).dirty)


def test_a_neighbour_that_computes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_STUB_NEIGHBOUR", str(STRANGER))
    monkeypatch.setenv("GPUPERF_STUB_NEIGHBOUR_PERCENT", "50")

    assert str(STRANGER) in " ".join(measured(steady).dirty)
