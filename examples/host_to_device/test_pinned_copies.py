"""Batches from pageable memory, from pinned memory, and without waiting for the copy.

A loader does the same with ``DataLoader(pin_memory=True)``; the two changes come one at a
time here, so that each shows what it does.
"""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


def batch():
    return torch.rand(16, 3, 224, 224), torch.randint(10, (16,))


@pytest.mark.claim("D2")
@gpuperf.budget(pageable_copies=0)
def test_pinned_batches_are_copied_without_a_detour(gpuperf, gpu):
    pageable = batch()
    pinned = [tensor.pin_memory() for tensor in pageable]
    assert [tensor.is_pinned() for tensor in (*pageable, *pinned)] == [0, 0, 1, 1]

    result = gpuperf.compare(
        lambda: [tensor.to(gpu) for tensor in pageable],
        lambda: [tensor.to(gpu) for tensor in pinned],
    )

    assert (result.copies.before, result.copies.after) == (2, 0)


@pytest.mark.claim("D3")
@gpuperf.budget(syncs=0)
def test_a_non_blocking_copy_keeps_nobody_waiting(gpuperf, gpu):
    pinned = [tensor.pin_memory() for tensor in batch()]

    result = gpuperf.compare(
        lambda: [tensor.to(gpu) for tensor in pinned],
        lambda: [tensor.to(gpu, non_blocking=True) for tensor in pinned],
    )

    assert (result.syncs.before, result.syncs.after) == (2, 0)


@gpuperf.budget(syncs=0)
def test_only_memory_of_the_host_can_be_pinned(gpuperf, gpu):
    moved = gpuperf(lambda: torch.rand(5).pin_memory().to(gpu, non_blocking=True))

    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        moved.pin_memory()


@pytest.mark.claim("D26")
@gpuperf.budget(syncs=0, pageable_copies=0)
def test_a_copy_back_to_pinned_memory_keeps_nobody_waiting(gpuperf, gpu):
    source = torch.rand(1024, 1024, device=gpu)
    pageable, pinned = torch.empty(1024, 1024), torch.empty(1024, 1024).pin_memory()

    result = gpuperf.compare(
        lambda: pageable.copy_(source).shape,
        lambda: pinned.copy_(source, non_blocking=True).shape,
    )

    torch.cuda.synchronize()  # ``pinned`` may be read from here on, and not before
    torch.testing.assert_close(pinned, source.cpu())
    assert (result.syncs.before, result.syncs.after) == (1, 0)
