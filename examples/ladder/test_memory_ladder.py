"""GPT-2: 36272 -> 25194 -> 15394 -> 13108 MiB, each rung with the one above it.

A small model on a CPU. The published size stands in test_predicted_gpt2_large.py.
"""

from __future__ import annotations

import pytest
from models.gpt2 import SMALL
from models.gpt2 import Training


PLAIN = {"foreach": True}
SPLIT = PLAIN | {"micro_batches": 2}
RECOMPUTED = SPLIT | {"checkpointing": True}
IN_A_LOOP = RECOMPUTED | {"foreach": False}


def rung(before, after, *, mib):
    """One rung: the levers of both sides and what was published for them."""
    claim = pytest.mark.claim("M1", before=mib[0], after=mib[1])
    return pytest.param(before, after, mib[1] / mib[0], marks=claim)


@pytest.mark.parametrize(
    ("before", "after", "published"),
    [
        rung(PLAIN, SPLIT, mib=(36272, 25194)),
        rung(SPLIT, RECOMPUTED, mib=(25194, 15394)),
        rung(RECOMPUTED, IN_A_LOOP, mib=(15394, 13108)),
    ],
    ids=["micro-batches", "recomputing", "for-loop optimizer"],
)
def test_each_rung_needs_less_memory_for_the_same_training(
    gpuperf, before, after, published
):
    if gpuperf.device != "cpu":
        pytest.skip("on a GPU the workspaces of cuBLAS hide what a small model saves")

    result = gpuperf.compare(
        Training(SMALL, "cpu", **before),
        Training(SMALL, "cpu", **after),
        same_training=True,
    )

    assert result.memory.after / result.memory.before == pytest.approx(
        published, abs=0.15
    )
