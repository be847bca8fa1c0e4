"""A compiled function on a GPU that is new enough: Triton needs capability 7.0."""

from __future__ import annotations

import pytest
import torch


def spelled_out(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


@pytest.mark.claim("C18")
@pytest.mark.needs_capability(7, 0)
def test_a_function_is_compiled_on_a_gpu_that_can(gpuperf, gpu):
    compiled, x = torch.compile(spelled_out), torch.randn(64, 64, device=gpu)
    torch.testing.assert_close(compiled(x), spelled_out(x))

    result = gpuperf.compare(lambda: spelled_out(x), lambda: compiled(x))

    assert result.syncs.after == 0
