"""The ladder of memory at the published size, predicted without a GPU.

36 layers of width 1280, a batch of 32 times 128 tokens. Each prediction also tries what
else would lower the peak, so a rung takes minutes: ``-m slow --gpuperf-seconds=600``.
"""

from __future__ import annotations

from functools import partial

import pytest
from claims import read_claims
from models.gpt2 import LADDER
from models.gpt2 import LARGE
from models.gpt2 import Training

import pytest_gpuperf as gpuperf


pytestmark = [pytest.mark.slow, gpuperf.budget(mem_mb=80 * 1024)]

RUNGS = read_claims().ladder[: len(LADDER)]


@pytest.mark.claim("M2")
@pytest.mark.parametrize(
    ("rung", "levers"),
    list(zip(RUNGS, LADDER, strict=True)),
    ids=[rung.name for rung in RUNGS],
)
def test_gpt2_large_at_real_size(gpuperf, rung, levers):
    prospect = gpuperf.fits(partial(Training, LARGE, "cuda", **levers), gb=80)

    assert prospect
    assert prospect.peak_mb == pytest.approx(rung.predicted_mib, rel=0.01)
