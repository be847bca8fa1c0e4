"""The ladder of memory at the published size: predicted without a GPU, measured on one.

36 layers of width 1280, a batch of 32 times 128 tokens. The last rung is what one of two
ranks needs; its peer is torch's own fake, so nothing is sent, and what NCCL takes for
itself is not in the prediction.
"""

from __future__ import annotations

import pytest
from claims import read_claims
from claims_table import PREDICTED
from models.gpt2 import LADDER, LARGE, Training
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

import pytest_gpuperf as gpuperf


RUNGS = read_claims().ladder


def rung(number):
    """The rung of that number: the first by itself, the others with the one above."""
    mark = pytest.mark.claim("M2")
    if number:
        above, below = RUNGS[number - 1 : number + 1]
        numbers = {"before": above.published_mib, "after": below.published_mib}
        mark = pytest.mark.claim("M1", **numbers)
    return pytest.param(number, marks=mark, id=RUNGS[number].name)


@pytest.mark.parametrize("number", [rung(number) for number in range(len(RUNGS))])
def test_gpt2_large_at_real_size(predicted, record_property, number):
    allocated, reserved = predicted("gpt2_large.py", f"--rung={number}")

    record_property(PREDICTED, f"{allocated:.0f} MiB")
    assert reserved < 80 * 1024
    assert allocated == pytest.approx(RUNGS[number].predicted_mib, rel=0.01)


@pytest.mark.parametrize("number", [rung(number) for number in range(len(LADDER))])
def test_gpt2_large_on_a_gpu(gpuperf, real_gpu, number):
    gpuperf(
        Training(LARGE, real_gpu, **LADDER[number]),
        mem_mb=1.1 * RUNGS[number].predicted_mib,
    )


@gpuperf.ranks(2)
def test_gpt2_large_on_two_gpus(gpuperf, real_gpu):
    mesh = init_device_mesh(real_gpu, (distributed.get_world_size(),))

    gpuperf(
        Training(LARGE, real_gpu, mesh=mesh, **LADDER[-1]),
        rank_mem_mb=RUNGS[-1].published_mib,
    )
