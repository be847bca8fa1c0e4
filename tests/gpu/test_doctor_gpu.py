"""What only a machine with a GPU can say of itself."""

from __future__ import annotations

import pytest
import torch

from pytest_gpuperf.devices.machine import circumstances_of
from pytest_gpuperf.model.environment import DeviceKind


pytestmark = pytest.mark.gpu


def test_the_circumstances_of_a_gpu_are_told() -> None:
    found = {one.subject: one for one in circumstances_of(DeviceKind.CUDA)}

    assert found["profiler"].found == "Kineto records GPUs"
    assert found["driver"].found.endswith(f"; torch has {torch.version.cuda}")
    assert " MHz" in found["clock"].found
    assert {"cores", "workers", "governor", "load", "tools"} <= found.keys()
