"""Loading beside training: worker processes, pinned memory, non-blocking copies.

The note on pinned memory changes all three at once; here they come one at a time, and the
loss stays what it was. On a CPU a sleep stands for the time that a GPU would compute.
"""

from __future__ import annotations

import time

import pytest
import torch
from data.slow_disk import SlowDisk
from models.simplenet import SimpleNet
from torch.nn import functional as F
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


BATCH = 16

PLAIN = {}
WORKERS = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}
PINNED = {**WORKERS, "pin_memory": True}


def loader_of(disk=None, **settings):
    order = torch.Generator().manual_seed(0)
    disk = disk or SlowDisk()
    return DataLoader(disk, BATCH, shuffle=True, generator=order, **settings)


def step_on(device, *, non_blocking=False):
    torch.manual_seed(0)
    model = SimpleNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch):
        images, labels = (part.to(device, non_blocking=non_blocking) for part in batch)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cpu":
            time.sleep(0.008)
        return loss.detach()

    return step


SEEN = {"loader_wait_pct": 99.9, "syncs": 2, "pageable_copies": 2, "on": "*"}
"""Ceilings that all of it keeps: what is judged is also told."""

FED = {"loader_wait_pct": 35, "on": "cpu"}

CHANGES = {
    "workers": (PLAIN, WORKERS, False, FED),
    "pinned": (WORKERS, PINNED, False, {"pageable_copies": 0}),
    "non_blocking": (PINNED, PINNED, True, {"syncs": 0}),
}
"""Settings of the loader before and after, how it copies then, and what that must reach."""


@pytest.mark.claim("D1")
@pytest.mark.parametrize("change", CHANGES)
@gpuperf.budget(**SEEN)
def test_one_change_at_a_time(gpuperf, change):
    before, after, non_blocking, limits = CHANGES[change]
    device = gpuperf.device
    if device == "cpu" and change != "workers":
        pytest.skip("host and device are one here: nothing to copy, nobody to wait for")

    gpuperf.loader(loader_of(**before), step_on(device), name="before")
    step = step_on(device, non_blocking=non_blocking)
    gpuperf.loader(loader_of(**after), step, name="after", **limits)


def test_the_changes_leave_the_loss_where_it_was(shown):
    def last_loss(**settings):
        step = step_on("cpu")
        return [step(batch) for batch in loader_of(SlowDisk(160, 0), **settings)][-1]

    before, after = last_loss(**PLAIN), last_loss(**WORKERS)

    shown(before, after, "loss")
    assert after == before


@pytest.mark.claim("D4")
@gpuperf.budget(syncs=0, pageable_copies=0)
@gpuperf.budget(**FED)
def test_nothing_of_loading_is_left_in_the_step(gpuperf):
    device = gpuperf.device
    fast = PINNED if device == "cuda" else WORKERS

    gpuperf.loader(loader_of(**PLAIN), step_on(device), name="before", **SEEN)
    step = step_on(device, non_blocking=True)
    gpuperf.loader(loader_of(**fast), step, name="after")


@pytest.mark.claim("D5")
@gpuperf.budget(**SEEN)
def test_a_second_worker_feeds_a_device_that_waited_for_the_first(gpuperf):
    one, two = (
        loader_of(SlowDisk(read_ms=1), **{**WORKERS, "num_workers": workers})
        for workers in (1, 2)
    )
    gpuperf.loader(one, step_on(gpuperf.device), name="one worker")
    gpuperf.loader(two, step_on(gpuperf.device), name="two workers", **FED)
