"""Every kind of device implements the one protocol, and says what more it can do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from scripted_device import ScriptedDevice

from pytest_gpuperf.devices import open_device
from pytest_gpuperf.devices.base import (
    Device,
    EmulatingDevice,
    MeasuringDevice,
    with_clock,
)
from pytest_gpuperf.devices.cpu import CpuDevice
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.distributed.device import AgreedDevice
from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.environment import Capability, DeviceKind


PROTOCOLS: Final = (Device, MeasuringDevice, EmulatingDevice)
MAY_BE_INHERITED: Final = {
    *("measuring", "emulating", "enter", "leave"),
    *("is_ranked", "any_rank", "together", "timed_fetch"),
    *("lines_take_time", "plain_profile", "remarks"),
    *("core_ns", "undisturbed_core_ns", "work", "others_ns", "disturbance"),
    *("record_event", "span_ms", "clock_mhz", "fingerprint", "operations"),
    *("leaked", "garbage_of_step", "picture_memory", "blocks"),
    *("record_allocations", "own_now_ns"),
}
"""What a device need not say: then it has none of it."""


class Alone:
    """A rank without others."""

    count = 1

    def integers(self, values: Any) -> Any:
        return (tuple(values),)

    def objects(self, value: Any) -> Any:
        return (value,)


SCRIPTED: Final = ScriptedDevice({}, run=0)
SIMULATED_GPU: Final = SimulatedDevice(root="")
RANKED: Final = AgreedDevice(SCRIPTED, Alone())


@pytest.mark.parametrize(
    "kind", [CpuDevice, CudaDevice, ScriptedDevice, SimulatedDevice, AgreedDevice]
)
def test_no_device_leaves_out_a_method_of_its_protocol(kind: type) -> None:
    protocols = [p for p in PROTOCOLS if p in kind.__mro__]
    asked = {n for p in protocols for n in vars(p) if not n.startswith("_")}
    own = {n for c in kind.__mro__ if c not in PROTOCOLS for n in vars(c)}

    assert protocols
    assert asked - own <= MAY_BE_INHERITED


@pytest.mark.parametrize(
    ("device", "able"),
    [
        (SCRIPTED, {"measuring"}),
        (RANKED, {"measuring"}),
        (SIMULATED_GPU, {"emulating"}),
    ],
)
def test_a_device_says_which_more_it_is(device: Device, able: set[str]) -> None:
    found = {n: getattr(device, n) for n in ("measuring", "emulating")}

    assert {n for n, view in found.items() if view is not None} == able
    assert {id(view) for view in found.values() if view is not None} == {id(device)}


def test_only_ranks_that_agree_measure_together() -> None:
    assert [d.is_ranked for d in (SCRIPTED, RANKED, SIMULATED_GPU)] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("device", [SCRIPTED, SIMULATED_GPU])
def test_a_kind_has_a_clock_where_its_device_times_steps(device: Device) -> None:
    assert device.kind.has(Capability.CLOCK) == (device.measuring is not None)
    assert device.kind.has(Capability.FORECAST) == (device.emulating is not None)


def test_a_device_without_a_clock_is_refused_where_steps_are_timed() -> None:
    assert with_clock(SCRIPTED) is SCRIPTED
    with pytest.raises(UsageError, match="the device simulated has no clock"):
        with_clock(SIMULATED_GPU)


def test_lines_are_named_of_the_checkout_around_the_rootdir(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()

    device = open_device(DeviceKind.SIMULATED, root=str(tmp_path / "projects/one"))

    assert isinstance(device, SimulatedDevice)
    assert device.root == str(tmp_path)


def test_the_scripted_device_is_not_in_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scripted_device", None)

    with pytest.raises(UsageError, match=r"needs scripted_device\.py") as refused:
        open_device(DeviceKind.SCRIPTED, "script.json")

    assert refused.value.error_id is ErrorId.GP403
