"""How many workers a loader should have: a first guess, and then trying.

The guess is the machine's cores, shared out among its GPUs; `gpuperf doctor` says it. It is
one for data that must be computed. Workers that wait for a disk need no core meanwhile.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from data.feeding import rest_of_a_step, waited_pct
from data.slow_disk import SlowDisk
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


@pytest.mark.slow
@pytest.mark.claim("D6")
def test_the_doctor_shares_the_cores_out_among_the_gpus(shown):
    command = [
        sys.executable,
        "-m",
        "pytest_gpuperf",
        "doctor",
        "--device=simulated",
    ]
    doctor = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603

    said = " ".join(doctor.stdout.split())
    cores, gpus = re.search(r"workers (\d+) cores?, (\d+) device", said).groups()
    workers = re.search(r"begin with DataLoader\(num_workers=(\d+)\)", said).group(1)
    shown(int(cores), int(workers), "workers")
    assert int(workers) == max(1, int(cores) // int(gpus))


def waits_by_workers(gpuperf, disk):
    """Return the percent of the loop that was waiting, by the number of workers tried."""
    weights = torch.rand(28 * 28, 10, device=gpuperf.device)

    def step(batch):
        batch[0].flatten(1).to(gpuperf.device) @ weights
        rest_of_a_step()

    waits = {}
    for workers in (0, 2, 4):
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        name = f"{disk.read_ms} ms a read, {workers} workers"
        gpuperf.loader(DataLoader(disk, 16, **kept), step, name=name)
        waits[workers] = waited_pct(gpuperf)
    return waits


def best(waits):
    """Return the fewest workers that no others beat by more than 20 % of the loop."""
    least = min(waits.values())
    return min(workers for workers in waits if waits[workers] < least + 20)


@pytest.mark.claim("D24")
@gpuperf.budget(syncs=1)
@gpuperf.budget(loader_wait_pct=95, on=["cpu", "cuda"])
@pytest.mark.usefixtures("clock")
def test_the_best_number_of_workers_is_found_by_trying(gpuperf, shown):
    slow = waits_by_workers(gpuperf, SlowDisk(read_ms=1))
    quick = waits_by_workers(gpuperf, SlowDisk(read_ms=0))

    shown(round(slow[0]), round(slow[best(slow)]), f"% with {best(slow)}")
    assert best(slow) > 0
    assert best(quick) == 0
