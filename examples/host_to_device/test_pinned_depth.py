"""Pinned memory is the price of prefetching: a batch for each that is asked for ahead.

The system cannot take pinned pages back, so ``prefetch_factor`` times ``num_workers`` times
the size of a batch has to fit beside all else.
"""

from __future__ import annotations

import queue

import pytest
import torch
from data.asked import asked_for_first_batch
from torch.utils.data import DataLoader

import pytest_gpuperf as gpuperf


pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

IMAGES = torch.zeros(256, 64, 64)


def ahead(prefetch):
    return {"num_workers": 1, "prefetch_factor": prefetch}


def held_mib(prefetch, batch):
    """Return the size of all that is asked for when the first batch has been taken."""
    asked = asked_for_first_batch(IMAGES, batch, **ahead(prefetch))
    return asked * IMAGES[0].nbytes / 2**20


@pytest.mark.claim("D23")
def test_a_loader_holds_a_batch_for_each_that_is_asked_for_ahead(shown):
    shallow, deep = held_mib(prefetch=2, batch=16), held_mib(prefetch=8, batch=16)

    shown(deep, shallow, "MiB")
    assert (deep, shallow) == (9 / 4, 3 / 4)  # the first and 8 or 2, of 1/4 MiB each
    assert held_mib(prefetch=2, batch=32) == 2 * shallow


class Batch:
    """A batch that says how much of it is pinned, when the loader pins it."""

    pinned = queue.Queue()

    def __init__(self, images):
        self.images = torch.stack(images)

    def pin_memory(self):
        self.images = self.images.pin_memory()
        Batch.pinned.put(self.images.nbytes if self.images.is_pinned() else 0)
        return self


@pytest.mark.claim("D23")
@gpuperf.budget(syncs=0, pageable_copies=0)
def test_all_of_them_are_pinned_whether_they_are_used_or_not(gpuperf, gpu, shown):
    loader = DataLoader(IMAGES, 16, collate_fn=Batch, pin_memory=True, **ahead(8))
    batches = iter(loader)

    images = next(batches).images
    gpuperf(lambda: images.to(gpu, non_blocking=True))

    assert images.is_pinned()
    pinned = sum(Batch.pinned.get(timeout=60) for _ in range(1 + 8))
    shown(images.nbytes / 2**20, pinned / 2**20, "MiB")
    assert pinned == 9 * images.nbytes
    assert Batch.pinned.empty()
