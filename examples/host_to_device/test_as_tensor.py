"""From an array to a tensor: which functions copy it, and which share its memory."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.claim("D12")
def test_as_tensor_shares_the_memory_of_an_array(shown):
    numpy = pytest.importorskip("numpy")
    pixels = numpy.zeros((512, 512), "float32")

    copied = {
        make.__name__: pixels.nbytes * (make(pixels).data_ptr() != pixels.ctypes.data)
        for make in (torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor)
    }

    shown(copied["tensor"] / 2**20, copied["as_tensor"] / 2**20, "MiB")
    assert copied == {"tensor": 2**20, "as_tensor": 0, "from_numpy": 0, "Tensor": 0}
