"""ResNet-18, of 11.7 million parameters."""

from __future__ import annotations

import torch
from torch import nn


WIDTHS = (64, 128, 256, 512)


def convolution(entering, leaving, size, stride=1):
    """Make a convolution that keeps the image's size but for *stride*, normalised."""
    return nn.Sequential(
        nn.Conv2d(entering, leaving, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(leaving),
    )


class Block(nn.Module):
    """Two convolutions beside a connection that leaves them out."""

    def __init__(self, entering, leaving, stride=1):
        super().__init__()
        self.first = convolution(entering, leaving, 3, stride)
        self.second = convolution(leaving, leaving, 3)
        changes = stride != 1 or entering != leaving
        self.beside = (
            convolution(entering, leaving, 1, stride) if changes else nn.Identity()
        )

    def forward(self, x):
        inner = torch.relu(self.first(x))
        return torch.relu(self.second(inner) + self.beside(x))


class ResNet18(nn.Sequential):
    """Eight blocks in four widths, for images of three colours."""

    def __init__(self, classes=1000):
        blocks, entering = [], WIDTHS[0]
        for leaving in WIDTHS:
            stride = 1 if leaving == entering else 2
            blocks += [Block(entering, leaving, stride), Block(leaving, leaving)]
            entering = leaving
        super().__init__(
            *convolution(3, WIDTHS[0], 7, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(WIDTHS[-1], classes),
        )
