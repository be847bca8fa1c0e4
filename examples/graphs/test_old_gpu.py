"""A compiled function on a GPU that is new enough: Triton needs capability 7.0."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from captured import where_it_compiles
from models.gelu import spelled_out
from torch._dynamo.device_interface import CudaInterface


asked_by_torch = pytest.mark.skipif(
    not hasattr(CudaInterface, "is_triton_capable"), reason="this torch asks otherwise"
)


@asked_by_torch
@pytest.mark.claim("C18")
@pytest.mark.parametrize(("major", "new_enough"), [(6, False), (7, True)])
def test_the_compiler_itself_refuses_a_p100_and_takes_a_v100(
    major, new_enough, monkeypatch
):
    gpu = SimpleNamespace(major=major, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)

    assert CudaInterface.is_triton_capable() is new_enough


@pytest.mark.claim("C18")
@pytest.mark.needs_capability(7, 0)
@pytest.mark.usefixtures("gpu")
def test_a_function_is_compiled_on_a_gpu_that_can(gpuperf):
    x = torch.randn(64, 64, device=where_it_compiles(gpuperf))
    compiled = torch.compile(spelled_out)
    torch.testing.assert_close(compiled(x), spelled_out(x))

    result = gpuperf.compare(lambda: spelled_out(x), lambda: compiled(x))

    assert (result.ops.before, result.ops.after) == (5, 1)
