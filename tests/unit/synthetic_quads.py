"""Quads of times as a GPU with boosting clocks would show them."""

from __future__ import annotations

import random
from math import log1p

from pytest_gpuperf.judge.interleaved import Quad


WHITE = 0.007
SLOW = 0.004  # standard deviation of a first-order autoregression
MEMORY = 0.97  # of it, from block to block
SPIKES = 0.01  # share of blocks, a tenth slower on average
SHIFTS = 0.001  # clock changes a block, of 0.5 to 2 % for good
INSTANCE = 0.001  # lasting difference between two copies of one step


def boost_quads(count: int, seed: int, slowdown: float = 0.0) -> list[Quad]:
    """Alternate ABBA and BAAB at random; ``after`` is slower by *slowdown*."""
    noise = random.Random(seed)  # noqa: S311 - noise, no secret
    shift = log1p(slowdown) + noise.gauss(0, INSTANCE)
    slow, level = noise.gauss(0, SLOW), 0.0
    quads: list[Quad] = []
    for _ in range(count):
        blocks = []
        for _ in range(4):
            slow = MEMORY * slow + noise.gauss(0, SLOW * (1 - MEMORY**2) ** 0.5)
            if noise.random() < SHIFTS:
                level += noise.choice((-1, 1)) * noise.uniform(0.005, 0.02)
            spike = noise.random() < SPIKES and log1p(noise.expovariate(10))
            blocks.append(level + slow + noise.gauss(0, WHITE) + spike)
        first, second, third, fourth = blocks
        if noise.random() < 0.5:
            first, second, third, fourth = second, first, fourth, third
        quads.append((first, second + shift, third + shift, fourth))
    return quads
