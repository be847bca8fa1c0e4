"""Mixed precision: faster where one multiplies; less memory where activations are most of it.

Where weights are most of it mixed precision alone needs more, as was published (4.0 -> 4.4
GB): autocast keeps a copy of each weight in low precision until the forward has ended.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


def training(device, *, width, rows, mixed):
    torch.manual_seed(0)
    layers = (m for _ in range(4) for m in (nn.Linear(width, width), nn.Tanh()))
    model = nn.Sequential(*layers).to(device)
    batch = torch.rand(rows, width, device=device)

    def step():
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            found = model(batch)
        found.float().mean().backward()

    return step


def compared(gpuperf, *, width, rows, **budget):
    plain, mixed = (
        training(gpuperf.device, width=width, rows=rows, mixed=mixed)
        for mixed in (False, True)
    )
    return gpuperf.compare(plain, mixed, **budget).memory


@pytest.mark.claim("C8")
def test_mixed_precision_lowers_memory_where_activations_are_most_of_it(gpuperf):
    memory = compared(gpuperf, width=64, rows=8192)

    kept = 4 * 4 * 8192 * 64  # what each layer gave, in float32
    assert memory.difference <= -0.4 * kept


@pytest.mark.claim("C9", before=4.0, after=4.4)
def test_mixed_precision_raises_memory_where_weights_are_most_of_it(gpuperf):
    memory = compared(gpuperf, width=512, rows=16)

    assert memory.after > memory.before


@pytest.mark.claim("C8", gate="time")
@pytest.mark.usefixtures("clock", "bfloat16")
@gpuperf.tolerance(ms="1%", detect="50%")
def test_half_as_many_bits_are_multiplied_faster(gpuperf):
    # of less work launching its operations is most on a GPU, and autocast has more of them
    size = 512 if gpuperf.device == "cpu" else 2048
    compared(gpuperf, width=size, rows=size, speedup=1.1)
