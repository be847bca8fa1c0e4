"""A network in TensorRT, on the GPU that it needs."""

from __future__ import annotations

import pytest
import torch
from models.resnet18 import ResNet18


@pytest.mark.claim("G3", after=5)
@pytest.mark.slow
def test_tensorrt_is_quicker(gpuperf, gpu):
    pytest.importorskip("torch_tensorrt")
    model = ResNet18().eval().requires_grad_(requires_grad=False).to(gpu)
    x = torch.rand(1, 3, 224, 224, device=gpu)
    built = torch.compile(model, backend="torch_tensorrt")
    torch.testing.assert_close(built(x), model(x), rtol=1e-2, atol=1e-2)

    result = gpuperf.compare(lambda: model(x), lambda: built(x), speedup=2)

    assert result.time.verdict != "slower"
