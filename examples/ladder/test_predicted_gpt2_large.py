"""The ladder of memory at the published size: predicted without a GPU, measured on one.

36 layers of width 1280, a batch of 32 times 128 tokens. The last rung is what one of two
ranks needs; its peer is torch's own fake, so nothing is sent, and what NCCL takes for
itself is not in the prediction.
"""

from __future__ import annotations

from functools import partial

import pytest
from claims import read_claims
from models.gpt2 import LADDER
from models.gpt2 import LARGE
from models.gpt2 import Training
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

import pytest_gpuperf as gpuperf


pytestmark = gpuperf.budget(mem_mb=80 * 1024)

RUNGS = read_claims().ladder


def rung(number):
    """The rung of that number: the first by itself, the others with the one above."""
    mark = pytest.mark.claim("M2")
    if number:
        above, below = RUNGS[number - 1 : number + 1]
        numbers = {"before": above.published_mib, "after": below.published_mib}
        mark = pytest.mark.claim("M1", **numbers)
    return pytest.param(
        RUNGS[number], LADDER[number], marks=mark, id=RUNGS[number].name
    )


on_one_gpu = pytest.mark.parametrize(
    ("rung", "savings"), [rung(0), rung(1), rung(2), rung(3)]
)


@on_one_gpu
def test_gpt2_large_at_real_size(gpuperf, rung, savings):
    prospect = gpuperf.fits(
        partial(Training, LARGE, "cuda", **savings), gb=80, savings=False
    )

    assert prospect
    assert prospect.peak_mb == pytest.approx(rung.predicted_mib, rel=0.01)


@pytest.mark.claim("M1", before=RUNGS[3].published_mib, after=RUNGS[4].published_mib)
def test_gpt2_large_on_two_gpus_at_real_size(gpuperf, first_of_two):
    prospect = gpuperf.fits(
        lambda: Training(LARGE, "cuda", mesh=first_of_two, **LADDER[-1]),
        gb=80,
        savings=False,
    )

    assert prospect
    assert prospect.peak_mb == pytest.approx(RUNGS[-1].predicted_mib, rel=0.01)


@on_one_gpu
def test_gpt2_large_on_a_gpu(gpuperf, real_gpu, rung, savings):
    gpuperf(Training(LARGE, real_gpu, **savings), mem_mb=1.1 * rung.predicted_mib)


@gpuperf.ranks(2)
def test_gpt2_large_on_two_gpus(gpuperf, real_gpu):
    mesh = init_device_mesh(real_gpu, (distributed.get_world_size(),))

    gpuperf(
        Training(LARGE, real_gpu, mesh=mesh, **LADDER[-1]),
        rank_mem_mb=RUNGS[-1].published_mib,
    )
