"""The ladder of speed, 7.68 -> 2.28 -> 1.87 -> 1.81 s: each rung waits for something else.

Small batches leave the GPU's queue empty; larger ones wait for their data; with more
workers the GPU waits for the copy; without waiting for the copy it computes. The schedules
are made up so that the plugin's reading of a trace can be looked at without a GPU; the last
test waits for a real loader.
"""

from __future__ import annotations

import pytest
from claims_table import PREDICTED
from data.slow_disk import SlowDisk
from models.simulated import busy_percent
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


SMALL = [["load", 1000], ["copy", 50], ["launch", 4, 1500]]
LARGE = [["load", 30_000], ["copy", 3000], ["launch", 25, 500]]
WORKERS = [["load", 100], ["copy", 3000], ["launch", 25, 500]]
NON_BLOCKING = [["load", 100], ["copy_pinned", 500], ["launch", 25, 500]]


@pytest.mark.claim("T6")
@pytest.mark.parametrize(
    ("rung", "busy"),
    [(SMALL, 46), (LARGE, 34), (WORKERS, 81), (NON_BLOCKING, 96)],
    ids=["small batches", "large batches", "more workers", "non_blocking"],
)
def test_each_rung_keeps_the_gpu_as_busy_as_what_it_waits_for_lets_it(
    rung, busy, record_property
):
    found = busy_percent(*rung)

    record_property(PREDICTED, f"{found:.0f} % busy")
    assert found == pytest.approx(busy, abs=1)


@pytest.mark.claim("T6", gate="loader wait")
@gpuperf.budget(syncs=0)
def test_a_loader_without_workers_is_what_a_step_waits_for(gpuperf, clock):
    disk = SlowDisk(count=10_000, read_ms=5)
    loader = DataLoader(disk, batch_size=4, pin_memory=clock == "cuda")

    def step(batch):
        images, _ = batch
        return images.to(clock, non_blocking=True).sum()

    gpuperf.loader(loader, step)

    measured = gpuperf.measurement
    assert measured is None or measured.times["loader_wait_pct"].q50 > 50
