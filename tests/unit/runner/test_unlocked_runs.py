"""Only what is timed waits for a device that another run times on."""

from __future__ import annotations

import pytest

from pytest_gpuperf.devices.slots import slots_of
from pytest_gpuperf.model.environment import DeviceKind, DeviceSlot
from pytest_gpuperf.runner.reservation import Unlocked, turns_at


def test_what_is_counted_on_the_simulated_gpu_waits_for_nobody() -> None:
    (slot,) = slots_of(DeviceKind.SIMULATED, None)

    assert slot == DeviceSlot()
    assert isinstance(turns_at(slot, pytest.fail), Unlocked)
