"""What PyTorch has of the GPU and what it uses: the allocator between them gives nothing back.

A buffer that grows asks the GPU for a new block each time, for none that is free is large
enough; the largest one first, and all others fit into its block.
"""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


MIB = 2**20


def buffers(device, sizes_mib):
    def step():
        for size in sizes_mib:
            torch.zeros(size * MIB, dtype=torch.uint8, device=device)

    return step


def reserved_mib(gpuperf, step, **budget):
    torch.cuda.empty_cache()
    gpuperf(step, **budget)
    if gpuperf.measurement is None:
        pytest.skip("pytest runs without --gpuperf")
    exact = gpuperf.measurement.exact
    return exact["peak_reserved_bytes"] / MIB


@pytest.mark.claim("M11", gate="reserved memory")
@gpuperf.budget(reserved_mb=512, syncs=0)
def test_the_largest_buffer_first_reserves_no_more_than_that(gpuperf, gpu):
    sizes = (24, 32, 40, 48)

    growing = reserved_mib(gpuperf, buffers(gpu, sizes), name="growing")
    shrinking = reserved_mib(gpuperf, buffers(gpu, sizes[::-1]), name="shrinking")

    assert growing - shrinking == pytest.approx(sum(sizes) - max(sizes), abs=8)
