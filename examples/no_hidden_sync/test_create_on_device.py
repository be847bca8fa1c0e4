"""Tensors that are made on the host and moved: a copy that nobody needs, 4 MB each.

The notes list ``torch.tensor(numbers, device=...)`` as well. Its numbers are on the host, so
that it copies them as ``torch.tensor(numbers).to(...)`` does.
"""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


SIZE = (1000, 1000)
MAKERS = (torch.rand, torch.zeros, lambda size, **where: torch.full(size, 0.5, **where))


@pytest.mark.claim("Y4")
@gpuperf.budget(pageable_copies=0, h2d_mb=0, syncs=0)
def test_a_tensor_made_on_the_device_is_not_copied_there(gpuperf, gpu):
    result = gpuperf.compare(
        lambda: [make(SIZE).to(gpu) for make in MAKERS],
        lambda: [make(SIZE, device=gpu) for make in MAKERS],
    )

    assert (result.copies.before, result.copies.after) == (len(MAKERS), 0)


@gpuperf.budget(pageable_copies=1)
def test_numbers_of_the_host_are_copied_in_either_form(gpuperf, gpu):
    numbers = [0.5] * 1000

    result = gpuperf.compare(
        lambda: torch.tensor(numbers).to(gpu), lambda: torch.tensor(numbers, device=gpu)
    )

    assert (result.copies.before, result.copies.after) == (1, 1)
