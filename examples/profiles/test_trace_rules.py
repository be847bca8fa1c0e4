"""What copies and waits look like in a trace, and a sign that is none.

The note tells a copy to the device by ``cudaStreamSynchronize`` and one back by
``cudaMemcpyAsync``. Both calls stand beside both: the operation around them tells which it
is, and the name of the copy. Nor does ``aten::item`` alone say anything: Adam without
``foreach`` reads its step counters with it, and they are on the host.
"""

from __future__ import annotations

import pytest
import torch
from models.simulated import trace_of
from torch import nn
from torch.profiler import ProfilerActivity, profile

import pytest_gpuperf as gpuperf
from pytest_gpuperf.measure.syncs import find_syncs


def waits_of(*schedule):
    found = find_syncs(trace_of(*schedule)).findings
    return [(finding.op, finding.api, finding.per_step) for finding in found]


@pytest.mark.claim("Y5")
def test_both_directions_wait_in_the_same_call_and_in_operations_of_their_own():
    copied = waits_of(["copy", 500], ["launch", 10])
    pinned = waits_of(["copy_pinned", 500], ["launch", 10])
    read = waits_of(["launch", 10], ["item"])

    assert copied == [("aten::copy_", "cudaStreamSynchronize", 1)]
    assert pinned == []
    assert read == [("aten::_local_scalar_dense", "cudaStreamSynchronize", 1)]


@pytest.mark.claim("Y5")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="nothing is copied here")
def test_a_copy_says_its_direction_by_its_name():  # measures nothing
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.rand(1000).to("cuda").sum().item()

    names = {event.name.partition(" (")[0] for event in profiler.events()}
    assert {"Memcpy HtoD", "Memcpy DtoH"} <= names


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


def test_the_counters_of_adam_are_read_with_item():
    step = adam_step("cpu")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()

    items = sum(event.name == "aten::item" for event in profiler.events())
    assert items > 0


@gpuperf.budget(syncs=0)
def test_and_nobody_waits_for_the_gpu_in_it(gpuperf, gpu):
    gpuperf(adam_step(gpu))
