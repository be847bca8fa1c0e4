"""How many workers a loader should have: a first guess, and then trying.

The guess is the machine's cores, shared out among its GPUs; `gpuperf doctor` says it. It is
one for data that must be computed. Workers that wait for a disk need no core meanwhile.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
import torch
from data.slow_disk import SlowDisk
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


@pytest.mark.slow
@pytest.mark.claim("D6")
def test_the_doctor_shares_the_cores_out_among_the_gpus(shown):
    command = [sys.executable, "-m", "pytest_gpuperf", "doctor", "--device=pretend"]
    doctor = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603

    said = " ".join(doctor.stdout.split())
    cores, gpus = re.search(r"workers (\d+) cores?, (\d+) device", said).groups()
    workers = re.search(r"begin with DataLoader\(num_workers=(\d+)\)", said).group(1)
    shown(int(cores), int(workers), "workers")
    assert int(workers) == max(1, int(cores) // int(gpus))


MOST = {0: 90, 1: 75, 2: 40}
"""Percent of the loop that may be waiting, by the number of workers that is tried."""


@pytest.mark.claim("D24")
@gpuperf.budget(syncs=1)
@gpuperf.budget(on="cpu", loader_wait_pct=95)
def test_the_best_number_of_workers_is_found_by_trying(gpuperf):
    device = gpuperf.device
    weights = torch.rand(28 * 28, 10, device=device)

    def step(batch):
        batch[0].flatten(1).to(device) @ weights
        if device == "cpu":
            time.sleep(0.008)  # while a GPU would compute

    for workers, most in MOST.items():
        loader = DataLoader(
            SlowDisk(read_ms=1), 16, num_workers=workers, persistent_workers=workers > 0
        )
        name = f"{workers} workers"
        gpuperf.loader(loader, step, name=name, loader_wait_pct=most, on="cpu")
