"""A linear layer and the batch normalisation behind it, folded into one layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval


@pytest.mark.claim("C4")
def test_a_folded_layer_gives_the_same_with_fewer_operations(gpuperf, counts_kernels):
    linear, norm = nn.Linear(100, 50), nn.BatchNorm1d(50)
    norm(torch.randn(64, 50) + 1)  # statistics that are not those of a new layer
    both = nn.Sequential(linear, norm).eval().to(gpuperf.device)
    folded = fuse_linear_bn_eval(linear, norm)
    rows = torch.randn(4, 100, device=gpuperf.device)
    torch.testing.assert_close(both(rows), folded(rows))

    result = gpuperf.compare(lambda: both(rows), lambda: folded(rows))

    # on a GPU a normalisation by what is stored takes a root first, in a kernel of its own
    whole = 3 if counts_kernels else 2
    assert (result.ops.before, result.ops.after) == (whole, 1)
