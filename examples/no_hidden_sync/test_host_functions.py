"""print, assert, tolist, cpu and numpy: Python that needs the values of a device tensor."""

from __future__ import annotations

import pytest
import torch

import pytest_gpuperf as gpuperf


def prints(loss):
    return f"loss {loss:.3f}"


def asserts(loss):
    assert loss > 0


HOST_FUNCTIONS = (
    prints,
    asserts,
    torch.Tensor.tolist,
    torch.Tensor.cpu,
    lambda loss: loss.cpu().numpy(),
)


@pytest.mark.claim("Y2")
@gpuperf.budget(syncs=0)
def test_what_runs_on_the_host_waits_for_the_device(gpuperf, gpu):
    pytest.importorskip("numpy")
    errors = torch.rand(1024, device=gpu)

    result = gpuperf.compare(
        lambda: [function(errors.mean()) for function in HOST_FUNCTIONS],
        lambda: [errors.mean() for _ in HOST_FUNCTIONS],
    )

    assert (result.syncs.before, result.syncs.after) == (len(HOST_FUNCTIONS), 0)
