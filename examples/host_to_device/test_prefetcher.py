"""The next batch crosses to the GPU on a stream of its own, while this one is computed.

The host hands both out and waits for neither. That the copy and the kernels overlap is
seen in a trace of a GPU; that nobody waits is counted everywhere.
"""

from __future__ import annotations

from itertools import repeat

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


class Prefetcher:
    """Batches on the GPU, each copied while the one before is in use."""

    def __init__(self, batches, device):
        self.copies = (batch.to(device, non_blocking=True) for batch in batches)
        self.aside = torch.cuda.Stream()
        self._copy_next()

    def __iter__(self):
        return self

    def __next__(self):
        if self.coming is None:
            raise StopIteration
        torch.cuda.current_stream().wait_stream(self.aside)
        batch = self.coming
        batch.record_stream(torch.cuda.current_stream())  # its memory is in use there
        self._copy_next()
        return batch

    def _copy_next(self):
        with torch.cuda.stream(self.aside):
            self.coming = next(self.copies, None)


def training(batches, device):
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)).to(device)

    def step():
        model.zero_grad()
        model(next(batches)).square().mean().backward()

    return step


@pytest.mark.claim("D20")
@gpuperf.budget(syncs=0, pageable_copies=0)
def test_a_batch_on_its_way_keeps_nobody_waiting(gpuperf, gpu):
    pinned = torch.rand(64, 28, 28).pin_memory()
    in_turn = (batch.to(gpu) for batch in repeat(pinned))

    result = gpuperf.compare(
        training(in_turn, gpu), training(Prefetcher(repeat(pinned), gpu), gpu)
    )

    assert (result.syncs.before, result.syncs.after) == (1, 0)


@gpuperf.budget(syncs=0)
def test_a_prefetched_batch_is_the_one_that_was_sent(gpuperf, gpu):
    sent = [torch.full((4, 4), float(n)).pin_memory() for n in range(3)]

    arrived = list(Prefetcher(sent, gpu))
    gpuperf(lambda: torch.stack(arrived).sum())

    assert [batch.mean().item() for batch in arrived] == [0, 1, 2]
