"""Mixed precision with a layer norm by hand, and with one that stays in low precision.

A batch of 512 took 4.0 GB in float32, 4.4 with mixed precision alone and 2.9 with a fused
norm. The last ratio was 0.66; it is 0.72 here, by torch's own allocator (2.13, over stub CUDA) as
by the prediction, because autograd sums gradients in place today and a norm by hand takes less.
The rise before it is not shown: in this encoder, most of whose memory is activations, mixed
precision alone takes 0.77 of float32 (a model of weights shows the rise, in test_autocast.py). What made
that norm then, apex, is gone; ``nn.LayerNorm`` is one operation today, but autocast runs
it in float32 and keeps a copy of its input for that.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from models.encoder import Encoder
from models.encoder import InLowPrecision
from models.encoder import SpelledOut
from torch import nn
from torch.nn import functional as F

import pytest_gpuperf as gpuperf


def training(norm, device, *, mixed=True):
    with torch.device(device):
        model = Encoder(norm)
        rows, wanted = torch.rand(512, 13, 188), torch.rand(512, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        with torch.autocast(device, torch.float16, enabled=mixed):
            found = model(rows)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(found.float(), wanted).backward()
        optimizer.step()

    return step


def peak_mb(gpuperf, norm, **precision):
    prepared = partial(training, norm, "cuda", **precision)
    return gpuperf.fits(prepared, gb=80, savings=False).peak_mb


@pytest.mark.claim("C9")
@gpuperf.budget(mem_mb=4096)
def test_a_norm_in_low_precision_lowers_what_mixed_precision_needs(gpuperf):
    alone, float32 = (
        peak_mb(gpuperf, SpelledOut, mixed=mixed) for mixed in (True, False)
    )
    fused, low = (peak_mb(gpuperf, norm) for norm in (nn.LayerNorm, InLowPrecision))

    assert low / alone == pytest.approx(0.72, abs=0.03)  # 2.9 / 4.4 then
    assert low < 0.95 * fused
    assert alone / float32 == pytest.approx(0.77, abs=0.03)  # not 4.4 / 4.0


@pytest.mark.claim("C9")
def test_the_same_norm_lowers_it_on_a_gpu(gpuperf, real_gpu):
    result = gpuperf.compare(
        training(SpelledOut, real_gpu), training(InLowPrecision, real_gpu)
    )

    assert result.memory.after < 0.75 * result.memory.before
