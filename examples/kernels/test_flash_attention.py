"""Attention that writes down the score of each pair of tokens, and one that does not."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F


HEADS, TOKENS, WIDTH = 4, 1024, 32
SCORES_BYTES = 4 * HEADS * TOKENS**2


def spelled_out(query, key, value):
    scores = query @ key.transpose(-2, -1) / WIDTH**0.5
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
    return F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ value


def fused(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def training(attend, device):
    torch.manual_seed(0)
    parts = [torch.randn(1, HEADS, TOKENS, WIDTH).to(device) for _ in range(3)]
    parts = [part.requires_grad_() for part in parts]

    def step():
        for part in parts:
            part.grad = None
        attend(*parts).square().sum().backward()

    return step


@pytest.mark.claim("C7")
def test_fused_attention_never_holds_all_scores(gpuperf):
    result = gpuperf.compare(
        training(spelled_out, gpuperf.device),
        training(fused, gpuperf.device),
        same_training=True,
    )

    assert result.memory.difference < -2 * SCORES_BYTES
