"""Loading beside training: worker processes, pinned memory, non-blocking copies.

The note on pinned memory changes all three at once; here they come one at a time, and the
loss stays what it was. The model is small: a sleep stands for the rest of a step.
"""

from __future__ import annotations

import pytest
import torch
from data.feeding import rest_of_a_step, waited_pct
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
        rest_of_a_step()
        return loss.detach()

    return step


SEEN = {"loader_wait_pct": 99.9, "syncs": 2, "pageable_copies": 2, "on": "*"}
"""Ceilings that all of it keeps: what is judged is also told."""


@pytest.mark.claim("D1")
@gpuperf.budget(loader_wait_pct=10, syncs=2)
@gpuperf.budget(loader_wait_pct=35, on="cpu")
def test_workers_load_while_the_step_runs(gpuperf, clock):
    gpuperf.loader(loader_of(**PLAIN), step_on(clock), name="before", **SEEN)
    gpuperf.loader(loader_of(**WORKERS), step_on(clock), name="after")


CHANGES = {
    "pinned": (WORKERS, False, {"pageable_copies": 0}),
    "non_blocking": (PINNED, True, {"syncs": 0}),
}
"""What the loader had before, how it copies after, and what that must reach."""


@pytest.mark.claim("D1")
@pytest.mark.parametrize("change", CHANGES)
@gpuperf.budget(**SEEN)
def test_one_change_at_a_time(gpuperf, gpu, change):
    settings, non_blocking, limits = CHANGES[change]

    gpuperf.loader(loader_of(**settings), step_on(gpu), name="before")
    step = step_on(gpu, non_blocking=non_blocking)
    gpuperf.loader(loader_of(**PINNED), step, name="after", **limits)


def forever(loader):
    while True:
        yield from loader


@pytest.mark.claim("D1")
@gpuperf.budget(speedup=1.3)
def test_all_of_them_together_save_time(gpuperf, clock):
    one_by_one = forever(loader_of(**PLAIN))
    ahead = forever(loader_of(**(PINNED if clock == "cuda" else WORKERS)))
    before, after = step_on(clock), step_on(clock, non_blocking=True)

    gpuperf.compare(lambda: before(next(one_by_one)), lambda: after(next(ahead)))


@pytest.mark.claim("D1")
def test_the_changes_leave_the_loss_where_it_was(shown):
    def last_loss(**settings):
        step = step_on("cpu")
        return [step(batch) for batch in loader_of(SlowDisk(160, 0), **settings)][-1]

    before, after = last_loss(**PLAIN), last_loss(**WORKERS)

    shown(round(before.item(), 2), round(after.item(), 2), "loss")
    assert after == before


@pytest.mark.claim("D4")
@gpuperf.budget(loader_wait_pct=10, syncs=0, pageable_copies=0)
@gpuperf.budget(loader_wait_pct=35, on="cpu")
def test_nothing_of_loading_is_left_in_the_step(gpuperf):
    device = gpuperf.device
    fast = PINNED if device == "cuda" else WORKERS

    gpuperf.loader(loader_of(**PLAIN), step_on(device), name="before", **SEEN)
    step = step_on(device, non_blocking=True)
    gpuperf.loader(loader_of(**fast), step, name="after")


@pytest.mark.claim("D5")
@gpuperf.budget(loader_wait_pct=35, on=["cpu", "cuda"])
def test_a_second_worker_feeds_a_device_that_waited_for_the_first(gpuperf, clock):
    one, two = (
        loader_of(SlowDisk(read_ms=1.25), **{**WORKERS, "num_workers": workers})
        for workers in (1, 2)
    )
    gpuperf.loader(one, step_on(clock), name="one worker", **SEEN)
    waited = waited_pct(gpuperf)
    gpuperf.loader(two, step_on(clock), name="two workers")

    assert waited > 20
