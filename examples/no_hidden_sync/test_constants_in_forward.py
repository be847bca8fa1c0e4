"""A causal mask that each forward makes anew, or that is a buffer of its module."""

from __future__ import annotations

import pytest
import torch
from torch import nn


TOKENS = 512


def hidden(device):
    """Whatever comes after a token: True where a score is to be hidden."""
    return torch.ones(TOKENS, TOKENS, device=device).tril() == 0


class MadeInForward(nn.Module):
    def forward(self, scores):
        return scores.masked_fill(hidden(scores.device), 0.0)


class MadeOnce(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", hidden("cpu"), persistent=False)

    def forward(self, scores):
        return scores.masked_fill(self.hidden, 0.0)


@pytest.mark.claim("Y6")
def test_a_mask_is_made_once_and_not_in_each_forward(gpuperf):
    scores = torch.randn(TOKENS, TOKENS, device=gpuperf.device)
    before = MadeInForward().to(gpuperf.device)
    after = MadeOnce().to(gpuperf.device)

    result = gpuperf.compare(lambda: before(scores), lambda: after(scores))

    assert result.memory.after < result.memory.before
    assert (result.ops.before, result.ops.after) == (4, 1)
