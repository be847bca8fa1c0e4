"""What the hardware is, what may run on it, and what disturbs it: ``gpuperf doctor``."""

from __future__ import annotations

import subprocess
import sys

import pytest


SUBJECTS = {"device", "software", "cores", "workers"}


@pytest.mark.claim("T5")
def test_the_doctor_says_what_the_hardware_is_before_anybody_optimises(
    tmp_path, monkeypatch
):
    # the doctor asks pytest for the project's settings
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    doctor = [sys.executable, "-m", "pytest_gpuperf", "doctor"]

    found = subprocess.run(  # noqa: S603
        doctor,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stderr
    subjects = {line[:11].strip() for line in found.stdout.splitlines()}
    assert subjects >= SUBJECTS
    assert found.stdout.splitlines()[-1].startswith("gpuperf: can measure on ")
