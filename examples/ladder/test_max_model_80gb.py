"""The deepest GPT that trains on 80 GB: as it is, and on two such GPUs with the whole ladder.

Layers of width 1600 are added to it, of which each needs as much as the one before: two
predictions say how much. What counts is what nvidia-smi would show, as the published sizes
do: what the allocator reserves, and 0.75 GiB of CUDA's own. NCCL's is left out, so that the
second size is an upper bound.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from claims import read_claims
from claims_table import PREDICTED
from models.gpt2 import LADDER
from models.gpt2 import Gpt
from models.gpt2 import Shape
from models.gpt2 import Training


WIDE = Shape(layers=4, heads=25, width=1600, tokens=128, batch=32, dropout=0.1)
ROOM_MB = 80 * 1024 - 768


def reserved_mb(gpuperf, layers, savings):
    make = partial(Training, replace(WIDE, layers=layers), "cuda", **savings)
    return gpuperf.fits(make, gb=80, savings=False).reserved_mb


def deepest(gpuperf, **savings):
    few, more = (reserved_mb(gpuperf, layers, savings) for layers in (4, 8))
    a_layer = (more - few) / 4
    return int(4 + (ROOM_MB - few) / a_layer)


def millions(layers):
    with torch.device("meta"):
        model = Gpt(replace(WIDE, layers=layers), checkpointing=False)
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


@pytest.mark.claim("M3")
def test_80_gb_hold_five_times_as_large_a_model(gpuperf, first_of_two, shown):
    plain = millions(deepest(gpuperf, **LADDER[0]))
    climbed = millions(deepest(gpuperf, mesh=first_of_two, **LADDER[-1]))

    shown(round(plain), round(climbed), "M", column=PREDICTED)
    claim = read_claims()["M3"]
    assert plain == pytest.approx(claim.before, rel=0.1)
    assert climbed == pytest.approx(claim.after, rel=0.1)
