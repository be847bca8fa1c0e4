"""Programs that others wrote run on the pretend GPU as on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402, after the skip

from pytest_gpuperf.devices.pretend import pretend_gpu  # noqa: E402
from pytest_gpuperf.devices.pretend.gpu import PretendGpu  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[PretendGpu]:
    with pretend_gpu() as entered:
        yield entered


# Indices that are no tensors.

INDICES: dict[str, Any] = {
    "empty list": [],
    "number and empty list": (0, []),
    "slice and empty list": (slice(None), []),
    "two empty lists": ([], []),
    "empty list in a list": ([[]],),
    "empty array": np.array([]),
    "list": [2, 0],
    "list of masks": [True, False, True],
    "list of lists": [[0, 1], [1, 2]],
    "list with a slice": [slice(0, 1), 2],
    "list of tensors": [torch.tensor([0, 1]), torch.tensor([1, 2])],
    "array of int32": np.array([0, 1], dtype=np.int32),
    "range": range(2),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indices_that_are_no_tensors_select_as_on_the_host(index: Any) -> None:
    host = torch.arange(12.0).view(3, 4)
    device = host.cuda()

    selected = device[index]
    device[index] = 7.0
    expected = host[index]
    host[index] = 7.0

    assert selected.is_cuda
    assert selected.tolist() == expected.tolist()
    assert device.tolist() == host.tolist()


def test_an_empty_list_copies_nothing(gpu: PretendGpu) -> None:
    grid = torch.ones(3, 4, device="cuda")
    gpu.begin_step()
    grid[0, []]
    empty = gpu.end_step()
    grid[[0, 1]]
    full = gpu.end_step()

    assert (empty.findings, empty.copies) == ((), ())
    assert [(f.op, f.count) for f in full.findings] == [("aten::_to_copy", 1)]
    assert full.totals.h2d_bytes == 16
