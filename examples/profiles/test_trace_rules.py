"""What signs of copies and waits look like in a trace, and one that is none.

``aten::to``, ``aten::copy_`` and ``cudaStreamSynchronize`` come with a copy to the device,
``aten::item`` and ``cudaMemcpyAsync`` with one back. But ``aten::item`` alone says nothing:
Adam without ``foreach`` reads its step counters with it, and they are on the host.
"""

from __future__ import annotations

import pytest
import torch
from models.simulated import trace_of
from torch import nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile

import pytest_gpuperf as gpuperf
from pytest_gpuperf.probes.syncs import find_syncs


def waits_of(*schedule):
    found = find_syncs(trace_of(*schedule)).findings
    return [(finding.op, finding.api, finding.per_step) for finding in found]


@pytest.mark.claim("Y5")
def test_a_copy_and_a_number_read_back_have_signs_of_their_own():
    copied = waits_of(["copy", 500], ["launch", 10])
    pinned = waits_of(["copy_pinned", 500], ["launch", 10])
    read = waits_of(["launch", 10], ["item"])

    assert copied == [("aten::copy_", "cudaStreamSynchronize", 1)]
    assert pinned == []
    assert read == [("aten::_local_scalar_dense", "cudaStreamSynchronize", 1)]


def adam_step(device):
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    rows = torch.rand(4, 8, device=device)

    def step():
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()

    step()
    return step


def test_the_counters_of_adam_are_read_with_item(shown):
    step = adam_step("cpu")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()

    items = sum(event.name == "aten::item" for event in profiler.events())
    shown(items, 0, "aten::item, syncs")
    assert items > 0


@gpuperf.budget(syncs=0)
def test_and_nobody_waits_for_the_gpu_in_it(gpuperf, gpu):
    gpuperf(adam_step(gpu))
