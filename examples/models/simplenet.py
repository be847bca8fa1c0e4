"""A small MLP."""

from __future__ import annotations

from torch import nn


class SimpleNet(nn.Sequential):
    """One hidden layer over flat images."""

    def __init__(self, pixels=28 * 28, hidden=512, classes=10):
        super().__init__(
            nn.Flatten(),
            nn.Linear(pixels, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )
