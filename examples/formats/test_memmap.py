"""A packed file that is mapped into memory, from which a loader takes whole batches.

FFCV does this, and decodes images in compiled code besides. It comes without a wheel, so a
memory map and ``__getitems__`` stand in for it.
"""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from data.digits import digits
from data.memmap import mapped, write_packed
from data.opened import opened_below
from data.small_files import read_small_files, write_small_files
from torch.utils.data import DataLoader, Dataset

import pytest_gpuperf as gpuperf


SAMPLES = 256


class Packed(Dataset):
    def __init__(self, path):
        self.images = mapped(path)

    def __len__(self):
        return len(self.images)

    def __getitems__(self, indices):
        return self.images[indices]


def batches_of(dataset, **options):
    return DataLoader(dataset, batch_size=64, collate_fn=torch.as_tensor, **options)


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "digits.bin"
    write_packed(path, (image for image, _ in digits(SAMPLES)))
    return path


@pytest.mark.claim("D15")
def test_a_mapped_file_is_opened_once(packed, tmp_path, shown):
    small_files = write_small_files(tmp_path, digits(SAMPLES))

    with opened_below(tmp_path) as many:
        one_by_one = b"".join(image for image, _ in read_small_files(small_files))
    with opened_below(tmp_path) as single:
        images = torch.cat(list(batches_of(Packed(packed))))

    shown(len(many), len(single), "opens")
    assert bytes(images.flatten().tolist()) == one_by_one
    assert (len(many), len(single)) == (2 * SAMPLES, 1)


@gpuperf.budget(syncs=0, pageable_copies=0)
def test_batches_of_a_mapped_file_reach_the_gpu_without_a_wait(gpuperf, gpu, packed):
    loader = batches_of(Packed(packed), shuffle=True, pin_memory=True)
    batches = (batch for _ in cycle([0]) for batch in loader)

    images = gpuperf(lambda: next(batches).to(gpu, non_blocking=True))

    assert images.shape == (64, 28, 28)
