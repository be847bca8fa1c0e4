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


@pytest.fixture
def _every_warning():
    """Let torch say each time what it says once otherwise."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("_every_warning")
def test_a_list_of_arrays_is_stacked_first():
    numpy = pytest.importorskip("numpy")
    rows = [numpy.full((28, 28), row, "float32") for row in range(64)]

    with pytest.warns(UserWarning, match="list of numpy.ndarrays is extremely slow"):
        one_by_one = torch.tensor(rows)
    at_once = torch.from_numpy(numpy.stack(rows))

    assert torch.equal(one_by_one, at_once)
