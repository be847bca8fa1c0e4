"""The ladder of speed, 7.68 -> 2.28 -> 1.87 -> 1.81 s: each rung waits for something else.

Small batches leave the GPU's queue empty; larger ones wait for their data; with more
workers the GPU waits for the copy; without waiting for the copy it computes. The schedules
are made up so that the plugin's diagnosis can be looked at without a GPU; the last test
waits for a real loader.
"""

from __future__ import annotations

import pytest
from claims_table import PREDICTED
from data.slow_disk import SlowDisk
from models.simulated import shares_of
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


SMALL = [["load", 1000], ["copy", 50], ["launch", 4, 1500]]
LARGE = [["load", 30_000], ["copy", 3000], ["launch", 25, 500]]
WORKERS = [["load", 100], ["copy", 3000], ["launch", 25, 500]]
NON_BLOCKING = [["load", 100], ["copy_pinned", 500], ["launch", 25, 500]]


@pytest.mark.claim("T6")
@pytest.mark.parametrize(
    ("rung", "cause"),
    [
        (SMALL, "launches"),
        (LARGE, "loader"),
        (WORKERS, "copies"),
        (NON_BLOCKING, "gpu"),
    ],
    ids=["small batches", "large batches", "more workers", "non_blocking"],
)
def test_each_rung_waits_for_what_was_published(rung, cause, record_property):
    shares = shares_of(*rung)
    first = next(iter(shares))

    record_property(PREDICTED, f"{shares[first]:.0f} % {first}")
    assert first == cause


@pytest.mark.claim("T6", gate="loader wait")
@gpuperf.budget(syncs=0)
def test_a_loader_without_workers_is_what_a_step_waits_for(gpuperf):
    device = gpuperf.device
    disk = SlowDisk(count=10_000, read_ms=5)
    batches = iter(DataLoader(disk, batch_size=4, pin_memory=device == "cuda"))

    def step():
        images, _ = next(batches)
        return images.to(device, non_blocking=True).sum()

    gpuperf(step)

    measured = gpuperf.measurement
    if measured is None or "step_ms" not in measured.times:
        pytest.skip(
            "without a clock nobody can tell who waits: pytest --gpuperf-device=cpu"
        )
    assert measured.diagnosis.first.bottleneck.value == "loader"
