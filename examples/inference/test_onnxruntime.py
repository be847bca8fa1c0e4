"""A network as an ONNX file, run by ONNX Runtime through each of its execution providers."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


PROVIDERS = ("CPU", "CUDA", "Tensorrt", "OpenVINO")


def network():
    torch.manual_seed(0)
    layers = (layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU()))
    return nn.Sequential(*layers).eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("onnx") / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of the exporter's own use of what is deprecated
        torch.onnx.export(
            network(), (rows(),), path, input_names=["x"], dynamo=True, verbose=False
        )
    return path


def rows():
    return torch.linspace(-1, 1, 8 * 64).reshape(8, 64)


def session(file, provider):
    onnxruntime = pytest.importorskip("onnxruntime")
    name = f"{provider}ExecutionProvider"
    if name not in onnxruntime.get_available_providers():
        pytest.skip(f"this build of onnxruntime has no {name}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=[name])


@pytest.mark.claim("G13")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_gives_the_same(file, provider):
    runtime = session(file, provider)

    (result,) = runtime.run(None, {"x": rows().numpy()})

    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(torch.from_numpy(result), network()(rows()), **tolerance)


@pytest.mark.claim("G3", after=2)
@pytest.mark.slow  # a file takes seconds to write, and a measuring process writes its own
@gpuperf.tolerance(ms="1%", detect="25%")
@pytest.mark.usefixtures("clock")
def test_a_small_network_is_quicker_without_python(gpuperf, file):
    model, x, runtime = network(), rows(), session(file, "CPU")
    fed = {"x": x.numpy()}

    result = gpuperf.compare(
        lambda: model(x), lambda: runtime.run(None, fed), speedup=1.3
    )

    assert result.time.verdict != "slower"
