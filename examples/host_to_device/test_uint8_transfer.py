"""Images go to the device as the bytes they are, and become float there: a quarter of it."""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


@pytest.mark.claim("D7")
@gpuperf.budget(h2d_mb=2.3, syncs=0)
def test_images_travel_as_bytes(gpuperf, gpu):
    pixels = torch.randint(256, (16, 3, 224, 224), dtype=torch.uint8)
    as_bytes, as_floats = pixels.pin_memory(), (pixels / 255).pin_memory()

    def floats():
        return as_floats.to(gpu, non_blocking=True)

    def bytes_first():
        return as_bytes.to(gpu, non_blocking=True) / 255

    torch.testing.assert_close(floats(), bytes_first())
    gpuperf.compare(floats, bytes_first)
