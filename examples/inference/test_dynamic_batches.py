"""Requests that wait together are answered together, as an inference server does it.

On a host this saves operations and next to no time; a GPU is what small batches leave idle.
"""

from __future__ import annotations

import pytest
import torch
from models.simplenet import SimpleNet


def one_by_one(model, requests):
    return [model(rows) for rows in requests]


def joined(model, requests, most=64):
    """Answer as many requests at once as have *most* rows together."""
    answers, waiting = [], []
    for rows in requests:
        if waiting and sum(map(len, waiting)) + len(rows) > most:
            answers += answered_at_once(model, waiting)
            waiting = []
        waiting.append(rows)
    return answers + answered_at_once(model, waiting)


def answered_at_once(model, waiting):
    return list(model(torch.cat(waiting)).split([len(rows) for rows in waiting]))


@pytest.mark.claim("G5")
def test_joined_requests_launch_less_for_the_same_answers(gpuperf):
    model = SimpleNet().to(gpuperf.device).requires_grad_(requires_grad=False)
    requests = [torch.rand(4, 28 * 28, device=gpuperf.device) for _ in range(32)]
    torch.testing.assert_close(joined(model, requests), one_by_one(model, requests))

    result = gpuperf.compare(
        lambda: one_by_one(model, requests), lambda: joined(model, requests)
    )

    # 32 requests of 4 rows are 2 batches of 64, each of which is joined first
    layers = result.ops.before // len(requests)
    assert (result.ops.before, result.ops.after) == (32 * layers, 2 * (layers + 1))
