"""The next batch crosses to the GPU on a stream of its own, while this one is computed.

The host hands out first that copy, then the step which it is to run beside, and waits for
neither. The stream that computes waits for its own batch and keeps its memory until then.
"""

from __future__ import annotations

from contextlib import contextmanager
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


class Order(list):
    """What is enqueued, one after the other, each with its stream."""

    side = current = None

    def name(self, stream):
        return "main" if stream is None or stream is not self.side else "side"

    def add(self, what, stream=None):
        self.append(f"{self.name(stream or self.current)}: {what}")


@pytest.fixture
def order(monkeypatch):
    """Note which stream copies and steps are enqueued on, and which one waits."""
    order, enter, wait = Order(), torch.cuda.stream, torch.cuda.Stream.wait_stream

    @contextmanager
    def entered(stream):
        order.side = order.current = stream
        with enter(stream):
            yield
        order.current = None

    def waits(stream, other):
        order.add(f"wait for {order.name(other)}", stream)
        wait(stream, other)

    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda.Stream, "wait_stream", waits)
    return order


class Noted:
    """A batch that notes what is done with it."""

    def __init__(self, order, number, images):
        self.order, self.number, self.images = order, number, images

    def to(self, device, **how):
        self.order.add(f"copy {self.number}")
        return Noted(self.order, self.number, self.images.to(device, **how))

    def record_stream(self, stream):
        self.order.add(f"keep {self.number}", stream)
        self.images.record_stream(stream)


@pytest.mark.claim("D20")
@gpuperf.budget(syncs=0)
def test_the_next_copy_is_enqueued_aside_before_the_step(gpuperf, gpu, order):
    pinned = torch.rand(64, 784).pin_memory()

    def train():
        order.clear()
        for batch in Prefetcher([Noted(order, n, pinned) for n in range(2)], gpu):
            order.add(f"step {batch.number}")
            batch.images.square()

    gpuperf(train)

    assert order == [
        "side: copy 0",
        "main: wait for side",
        "main: keep 0",
        "side: copy 1",
        "main: step 0",
        "main: wait for side",
        "main: keep 1",
        "main: step 1",
    ]


@pytest.mark.claim("D20")
@gpuperf.budget(busy_pct=85, syncs=0)
def test_the_gpu_computes_while_a_batch_is_on_its_way(gpuperf, real_gpu):
    batches = Prefetcher(repeat(torch.rand(4096, 4096).pin_memory()), real_gpu)

    def step():
        batch = next(batches)
        return batch @ batch @ batch

    gpuperf(step)


@gpuperf.budget(syncs=0)
def test_a_prefetched_batch_is_the_one_that_was_sent(gpuperf, gpu):
    sent = [torch.full((4, 4), float(n)).pin_memory() for n in range(3)]

    arrived = list(Prefetcher(sent, gpu))
    gpuperf(lambda: torch.stack(arrived).sum())

    assert [batch.mean().item() for batch in arrived] == [0, 1, 2]
