"""A loader asks for a whole batch at once, and workers prepare the next ones ahead."""

from __future__ import annotations

import pytest
import torch
from data.asked import asked_for_first_batch
from torch.utils.data import DataLoader, Dataset


SAMPLES, BATCH = 512, 64


class OneByOne(Dataset):
    """Images that are made float one at a time."""

    def __init__(self):
        self.images = torch.randint(256, (SAMPLES, 28, 28), dtype=torch.uint8)
        self.fetches = 0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.fetches += 1
        return self.images[index].float().div_(255).sub_(0.5).div_(0.5)


class Batched(OneByOne):
    """The same, a batch at a time."""

    def __getitems__(self, indices):
        return self[indices]


def loaders():
    torch.manual_seed(0)
    one_by_one = DataLoader(OneByOne(), BATCH)
    batched = DataLoader(Batched(), BATCH, collate_fn=torch.as_tensor)
    batched.dataset.images = one_by_one.dataset.images
    return one_by_one, batched


@pytest.mark.claim("D10")
def test_a_batch_is_one_fetch(shown):
    one_by_one, batched = loaders()

    torch.testing.assert_close(torch.cat(list(batched)), torch.cat(list(one_by_one)))

    before, after = one_by_one.dataset.fetches, batched.dataset.fetches
    shown(before, after, "fetches")
    assert (before, after) == (SAMPLES, SAMPLES // BATCH)


def test_a_fetch_of_a_batch_takes_less_of_the_cpu(gpuperf):
    if gpuperf.device == "cuda":
        pytest.skip("work of the host alone: --gpuperf-device=cpu times it")
    one_by_one, batched = loaders()

    gpuperf.compare(lambda: list(one_by_one), lambda: list(batched), speedup=3)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("workers", "ahead"), [(0, 0), (1, 4)])
def test_workers_are_asked_for_batches_ahead(workers, ahead):
    depth = {"prefetch_factor": 4} if workers else {}

    asked = asked_for_first_batch(OneByOne(), BATCH, num_workers=workers, **depth)

    assert asked == (1 + ahead) * BATCH
