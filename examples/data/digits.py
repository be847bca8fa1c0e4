"""Images of MNIST's shape, as the bytes and the labels that a file of them would hold."""

from __future__ import annotations

import random


IMAGE_BYTES = 28 * 28


def digits(count):
    """Yield *count* pairs of an image's bytes and its label, the same ones each time."""
    generator = random.Random(0)  # noqa: S311, no secret
    for _ in range(count):
        yield generator.randbytes(IMAGE_BYTES), generator.randrange(10)
