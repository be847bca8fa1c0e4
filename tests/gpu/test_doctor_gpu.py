"""What only a machine with a GPU can say of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuperf.devices.machine import circumstances_of
from pytest_gpuperf.model.environment import DeviceKind


pytestmark = pytest.mark.gpu


def test_the_circumstances_of_a_gpu_are_told() -> None:
    found = {one.subject: one for one in circumstances_of(DeviceKind.CUDA)}

    assert found["profiler"].found == "Kineto records GPUs"
    assert " MHz" in found["clock"].found
    assert {"cores", "workers", "governor", "load"} <= found.keys()


def test_the_doctor_looks_in_a_fresh_process(tmp_path: Path) -> None:
    package = Path(__file__).parents[2]
    search = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest_gpuperf", "doctor", "--device=cuda"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "syncs, copies, memory and time - yes." in done.stdout
