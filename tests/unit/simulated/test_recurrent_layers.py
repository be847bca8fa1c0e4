"""Recurrent layers on the simulated GPU: one operation of cuDNN each, and their gradients."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn

from pytest_gpuperf.devices.audit_record import Totals
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.suite_watch import watching_suite


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu() as simulated:
        yield simulated


# The kernels of the CPU say so once in a process, in whichever test is the first to use them.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
SHAPES: list[dict[str, Any]] = [
    {},
    {"batch_first": True, "bias": False},
    {"bidirectional": True},
]


def states(layer: Any) -> Any:
    """Return first states that ask for a gradient."""
    ways = 2 if layer.bidirectional else 1
    like = layer.weight_hh_l0
    made = [
        torch.ones(ways * layer.num_layers, 3, size, device=like.device)
        for size in (layer.proj_size or layer.hidden_size, layer.hidden_size)
    ]
    for state in made:
        state.requires_grad_()
    return tuple(made) if layer.mode == "LSTM" else made[0]


def trained(layer: Any, batch: Any, *, packed: bool) -> Any:
    """Run it forward and backward; return all that comes out."""
    batch = batch.clone().requires_grad_(packed)
    given = batch
    if packed:
        given = nn.utils.rnn.pack_padded_sequence(
            batch, [5, 3, 2], batch_first=layer.batch_first
        )
    found, last = layer(given, states(layer)) if packed else layer(given)
    output = found.data if packed else found
    lasts = last if isinstance(last, tuple) else (last,)
    (output.sum() + sum(each.square().sum() for each in lasts)).backward()
    return output, *lasts, *([batch.grad] if packed else [])


def both(kind: type[Any], options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return a layer of the host, the same on the device, and a batch."""
    torch.manual_seed(0)
    host = kind(4, 6, 2, **options)
    shape = (3, 5, 4) if options.get("batch_first") else (5, 3, 4)
    return host, copy.deepcopy(host).cuda(), torch.randn(shape)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, shape) for kind in KINDS for shape in SHAPES),
        (nn.LSTM, {"proj_size": 3}),
    ],
)
def test_a_layer_gives_what_the_host_does(
    gpu: SimulatedGpu, kind: type[Any], options: dict[str, Any], *, packed: bool
) -> None:
    host, device, batch = both(kind, options)

    expected = trained(host, batch, packed=packed)
    found = trained(device, batch.cuda(), packed=packed)

    pairs = [*zip(found, expected, strict=True)]
    pairs += [
        (ours.grad, theirs.grad)
        for ours, theirs in zip(device.parameters(), host.parameters(), strict=True)
    ]
    assert all(ours.is_cuda for ours, _ in pairs)
    assert all(torch.allclose(ours.cpu(), theirs, atol=1e-5) for ours, theirs in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, shape) for kind in KINDS for shape in SHAPES),
        (nn.LSTM, {"proj_size": 3}),
    ],
)
def test_its_floating_point_operations_are_those_of_the_products_it_is_made_of(
    gpu: SimulatedGpu,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Any],
    options: dict[str, Any],
    *,
    packed: bool,
) -> None:
    _, device, batch = both(kind, options)
    batch = batch.cuda()

    def totals(*, cudnn: bool) -> Totals:
        # Not `cudnn.flags`, which warns in torch 2.9.
        monkeypatch.setattr(torch.backends.cudnn, "enabled", cudnn)
        gpu.begin_step()
        trained(device, batch, packed=packed)
        return gpu.end_step().totals

    whole, composed = totals(cudnn=True), totals(cudnn=False)
    assert whole.counts["flops"] == composed.counts["flops"] > 0
    assert whole.syncs == composed.syncs == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_one_operation_in_a_watched_suite(kind: type[Any]) -> None:
    with watching_suite(".", gib=16) as suite:
        layer = kind(4, 6, 2).cuda()
        batch = torch.randn(5, 3, 4, device="cuda")
        state = states(layer)
        suite.begin_test()
        layer(batch, state)

        assert suite._gpu.so_far().totals.counts["launches"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_one_operation_and_one_backward_as_on_cuda(
    gpu: SimulatedGpu, kind: type[Any]
) -> None:
    layer = kind(4, 6, 2).cuda()
    batch = torch.randn(5, 3, 4, device="cuda")
    state = states(layer)

    gpu.begin_step()
    output, _ = layer(batch, state)
    forward = gpu.end_step().totals.counts["launches"]
    torch.autograd.grad(output, [*layer.parameters()], torch.ones_like(output))
    backward = gpu.end_step().totals.counts["launches"]

    assert forward == 1
    # The gradient of ones is the other.
    assert backward == 2
    assert output.grad_fn.name() == "CudnnRnnBackward0"


def test_in_inference_mode_too_it_is_one_operation(gpu: SimulatedGpu) -> None:
    layer = nn.GRU(4, 6).cuda()
    with torch.inference_mode():
        batch = torch.randn(5, 3, 4, device="cuda")
        state = torch.zeros(1, 3, 6, device="cuda")
        gpu.begin_step()
        output, _ = layer(batch, state)

    assert gpu.end_step().totals.counts["launches"] == 1
    assert output.is_inference()


def test_backward_drops_what_forward_has_dropped(gpu: SimulatedGpu) -> None:
    layer = nn.LSTM(3, 3, 2, dropout=0.5).cuda().double()
    batch = torch.randn(4, 2, 3, device="cuda", dtype=torch.float64)
    near = batch.clone()
    near[0, 0, 0] += 1e-6

    def loss(given: Any) -> Any:
        torch.manual_seed(1)
        return layer(given)[0].sum()

    batch.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(batch), batch)
    slope = (loss(near) - loss(batch)) / 1e-6

    assert torch.allclose(gradient[0, 0, 0], slope, atol=1e-5)
    assert not torch.equal(layer(batch)[0], layer(batch)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_runs_in_float16_whatever_its_dtype_is(
    gpu: SimulatedGpu, dtype: Any
) -> None:
    layer = nn.LSTM(4, 6).cuda()

    with torch.autocast("cuda", dtype=dtype):
        output, _ = layer(torch.randn(5, 3, 4, device="cuda"))
    output.float().sum().backward()

    # cuDNN's layer has a rule of its own in torch's autocast, which knows no other.
    assert output.dtype is torch.float16
    assert layer.weight_hh_l0.grad.dtype is torch.float32


def test_under_autocast_torch_s_own_layer_runs_in_the_dtype_of_that(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = nn.LSTM(4, 6).cuda()

    # Not `cudnn.flags`, which warns in torch 2.9.
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output, _ = layer(torch.randn(5, 3, 4, device="cuda"))
    output.float().sum().backward()

    assert output.dtype is torch.bfloat16
    assert layer.weight_hh_l0.grad.dtype is torch.float32


def test_sizes_alone_are_enough() -> None:
    with simulated_gpu(values=False):
        layer = nn.GRU(4, 6, 2, dropout=0.5).cuda()
        output, _ = layer(torch.randn(5, 3, 4, device="cuda"))
        output.sum().backward()

        assert output.shape == (5, 3, 6)
        assert layer.weight_hh_l1.grad.shape == (18, 6)


def test_what_cudnn_refuses_is_refused(gpu: SimulatedGpu) -> None:
    layer = nn.GRU(4, 6).cuda()
    batch = torch.randn(5, 3, 4, device="cuda", requires_grad=True)

    def changed() -> None:
        output = layer(batch)[0]
        output.mul_(2)
        output.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        changed()
    (gradient,) = torch.autograd.grad(layer(batch)[0].sum(), batch, create_graph=True)
    with pytest.raises(NotImplementedError, match="Double backwards is not supported"):
        gradient.sum().backward()
    layer.eval()
    with pytest.raises(RuntimeError, match="can only be called in training mode"):
        layer(batch)[0].sum().backward()


class Settings:
    """What torch 2.9 and 2.10 have under the name of the module that numbers layers."""

    __slots__ = ()


def test_settings_under_the_name_of_cudnns_module_are_left_alone_until_a_layer_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings()
    monkeypatch.setattr(torch.backends.cudnn, "rnn", settings, raising=False)
    monkeypatch.delitem(sys.modules, "torch.backends.cudnn.rnn", raising=False)

    with simulated_gpu():
        assert torch.backends.cudnn.rnn is settings
        layer = nn.LSTM(4, 5).to("cuda")
        layer(torch.ones(2, 3, 4, device="cuda"))[0].sum().backward()

    assert layer.weight_hh_l0.grad.device.type == "cuda"
