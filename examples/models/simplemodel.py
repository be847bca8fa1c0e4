"""A small CNN."""

from __future__ import annotations

from torch import nn


class SimpleModel(nn.Sequential):
    """Convolutions and pools over square colour images, then two linear layers."""

    def __init__(self, image_size=32, channels=16, hidden_layers=3, classes=10):
        side = image_size // 2 ** (hidden_layers + 1)
        super().__init__(
            *convolution(3, channels),
            *(m for _ in range(hidden_layers) for m in convolution(channels, channels)),
            nn.Flatten(),
            nn.Linear(channels * side * side, 256),
            nn.ReLU(),
            nn.Linear(256, classes),
        )


def convolution(inputs, outputs):
    """Layers that keep the image's size and then halve it."""
    return (
        nn.Conv2d(inputs, outputs, kernel_size=3, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
