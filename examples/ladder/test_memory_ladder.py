"""GPT-2: 36272 -> 25194 -> 15394 -> 13108 MiB, each rung with the one above it.

A small model on a CPU. The published size stands in test_predicted_gpt2_large.py.
"""

from __future__ import annotations

import pytest
from claims import read_claims
from models.gpt2 import LADDER
from models.gpt2 import SMALL
from models.gpt2 import Training


RUNGS = read_claims().ladder


def step_down(number):
    """The rung of that number, with what was published for it and the one above."""
    above, rung = RUNGS[number - 1 : number + 1]
    mark = pytest.mark.claim("M1", before=above.published_mib, after=rung.published_mib)
    return pytest.param(number, marks=mark, id=rung.name)


@pytest.mark.parametrize("number", [step_down(1), step_down(2), step_down(3)])
def test_each_rung_needs_less_memory_for_the_same_training(gpuperf, number):
    if gpuperf.device != "cpu":
        pytest.skip("on a GPU the workspaces of cuBLAS hide what a small model saves")
    above, rung = RUNGS[number - 1 : number + 1]

    result = gpuperf.compare(
        Training(SMALL, "cpu", **LADDER[number - 1]),
        Training(SMALL, "cpu", **LADDER[number]),
        same_training=True,
    )

    saved = result.memory.after / result.memory.before
    assert saved == pytest.approx(rung.published_mib / above.published_mib, abs=0.1)
    assert result.memory.after / 2**20 == pytest.approx(rung.scaled_mib, rel=0.02)
