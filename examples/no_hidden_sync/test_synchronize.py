"""torch.cuda.synchronize around each part of a step, to time it, and left in for good."""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


@pytest.mark.claim("Y3")
@gpuperf.budget(syncs=0)
def test_a_step_that_nobody_times_needs_no_synchronisation(gpuperf, gpu):
    weights = torch.rand(64, 64, device=gpu)

    def timed():
        for _ in range(3):
            weights @ weights
            torch.cuda.synchronize()

    def untimed():
        for _ in range(3):
            weights @ weights

    result = gpuperf.compare(timed, untimed)

    assert (result.syncs.before, result.syncs.after) == (3, 0)
