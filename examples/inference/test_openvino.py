"""A network in OpenVINO, by itself: ONNX Runtime has it as a provider, too."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.mark.claim("G13")
@pytest.mark.filterwarnings("ignore")  # of what it uses and torch has deprecated
def test_openvino_gives_the_same():
    openvino = pytest.importorskip("openvino")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    model.requires_grad_(requires_grad=False)
    x = torch.linspace(-1, 1, 4 * 64).reshape(4, 64)

    graph = openvino.convert_model(torch.export.export(model, (x,)))
    compiled = openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    (result,) = compiled(x.numpy()).values()
    torch.testing.assert_close(torch.from_numpy(result), model(x), rtol=1e-3, atol=1e-4)
