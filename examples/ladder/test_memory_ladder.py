"""GPT-2: 36272 -> 25194 -> 15394 -> 13108 -> 8502 MiB, each rung with the one above it.

A small model on a CPU. The published size stands in test_predicted_gpt2_large.py.
"""

from __future__ import annotations

import pytest
from claims import read_claims
from models.gpt2 import LADDER
from models.gpt2 import SMALL
from models.gpt2 import Training
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

import pytest_gpuperf as gpuperf


RUNGS = read_claims().ladder


def published(number):
    """What was published for the rung of that number, and the one above it."""
    above, rung = RUNGS[number - 1 : number + 1]
    return pytest.mark.claim("M1", before=above.published_mib, after=rung.published_mib)


def step_down(number):
    return pytest.param(number, marks=published(number), id=RUNGS[number].name)


def skip_on_a_gpu(device):
    if device != "cpu":
        pytest.skip("on a GPU the workspaces of cuBLAS hide what a small model saves")


@pytest.mark.parametrize("number", [step_down(1), step_down(2), step_down(3)])
def test_each_rung_needs_less_memory_for_the_same_training(gpuperf, number):
    skip_on_a_gpu(gpuperf.device)
    above, rung = RUNGS[number - 1 : number + 1]

    result = gpuperf.compare(
        Training(SMALL, "cpu", **LADDER[number - 1]),
        Training(SMALL, "cpu", **LADDER[number]),
        same_training=True,
    )

    saved = result.memory.after / result.memory.before
    assert saved == pytest.approx(rung.published_mib / above.published_mib, abs=0.1)
    assert result.memory.after / 2**20 == pytest.approx(rung.scaled_mib, rel=0.02)


@published(4)
@gpuperf.ranks(2)
def test_each_of_two_ranks_needs_less_with_fsdp(gpuperf):
    skip_on_a_gpu(gpuperf.device)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))

    gpuperf(
        Training(SMALL, "cpu", mesh=mesh, **LADDER[-1]),
        rank_mem_mb=1.02 * RUNGS[4].scaled_mib,
    )
