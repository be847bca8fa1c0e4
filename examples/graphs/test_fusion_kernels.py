"""Techniques of a compiler: what eager code launches, and what Inductor does instead.

Placing work on devices is left to the caller by Inductor, and order to the device: it has
no counterpart of those two techniques.
"""

from __future__ import annotations

import pytest
import torch
from inductor import kernels_of, needs_compiler, operations_of, source_of
from torch.nn import functional as F


pytestmark = needs_compiler

X = torch.linspace(-1, 1, 64 * 64).reshape(64, 64)
HEADS = X.reshape(1, 4, 16, 64)


def vertical(x):
    return torch.relu(torch.sigmoid(torch.tanh(x) * 2 + 1))


def horizontal(x):
    return torch.stack((x * 2, torch.tanh(x), torch.relu(x)))


def unrolled(x):
    for _ in range(4):
        x = torch.sin(x) + 0.1 * x
    return x


def product_and_sum(x):
    return x @ X + X[0]


def attention(x):
    return F.softmax(x @ x.transpose(-2, -1) / 8, dim=-1) @ x


def same_twice(x):
    return torch.tanh(x) + torch.tanh(x)


TECHNIQUES = [
    pytest.param(vertical, X, 5, 1, id="vertical fusion"),
    pytest.param(horizontal, X, 4, 1, id="horizontal fusion"),
    pytest.param(unrolled, X, 12, 1, id="loop unrolling"),
    pytest.param(product_and_sum, X, 2, 1, id="algebra: a sum into its product"),
    pytest.param(attention, HEADS, 4, 1, id="algebra: attention as one operation"),
]


@pytest.mark.claim("C13")
@pytest.mark.parametrize(("function", "x", "operations", "kernels"), TECHNIQUES)
def test_fewer_kernels_do_the_same(function, x, operations, kernels, shown):
    before, after = operations_of(function, x), kernels_of(function, x)

    shown(before, after, "kernels")
    assert (before, after) == (operations, kernels)


def test_what_is_the_same_is_computed_once():
    assert source_of(same_twice, X).count("std::tanh(") == 1


@pytest.mark.parametrize(("threads", "parallel"), [(1, 0), (2, 1)])
def test_a_large_loop_is_shared_out_among_threads(threads, parallel):
    large = torch.zeros(1000, 1000)

    source = source_of(vertical, large, **{"cpp.threads": threads})

    assert source.count("#pragma omp parallel") == parallel
