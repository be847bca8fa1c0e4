"""The deepest GPT that trains on 80 GB: as it is, and on two such GPUs with the whole ladder.

Layers of width 1600 are added to it, of which each needs as much as the one before: two
predictions say how much. What counts is what nvidia-smi would show, as the published sizes
do: what the allocator reserves, and 0.75 GiB of CUDA's own. NCCL's is left out, so that the
second size is an upper bound.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from claims import read_claims
from claims_table import PREDICTED
from models.gpt2 import LADDER, WIDE, Gpt


ROOM_MB = 80 * 1024 - 768


def deepest(predicted, rung):
    few, more = (
        predicted("gpt2_large.py", f"--rung={rung}", f"--wide-layers={layers}")[1]
        for layers in (4, 8)
    )
    a_layer = (more - few) / 4
    return int(4 + (ROOM_MB - few) / a_layer)


def millions(layers):
    with torch.device("meta"):
        model = Gpt(replace(WIDE, layers=layers), checkpointing=False)
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


@pytest.mark.claim("M3")
def test_80_gb_hold_five_times_as_large_a_model(predicted, shown):
    plain = millions(deepest(predicted, 0))
    climbed = millions(deepest(predicted, len(LADDER)))

    shown(round(plain), round(climbed), "M", column=PREDICTED)
    claim = read_claims()["M3"]
    assert plain == pytest.approx(claim.before, rel=0.1)
    assert climbed == pytest.approx(claim.after, rel=0.1)
