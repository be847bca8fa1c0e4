"""Kernels that only CUDA has give the host's values, and keep what CUDA's would keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


F = nn.functional

attend = F.scaled_dot_product_attention

EFFICIENT = "ScaledDotProductEfficientAttentionBackward0"
FLASH = "ScaledDotProductFlashAttentionBackward0"


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu():
        yield


def inputs(dtype: Any = torch.float32, width: int = 8, heads: int = 4) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(2, heads, 6, width, dtype=dtype) for _ in range(3)]


def both(call: Callable[..., Any], tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """Result and gradients of *call* on the host and on the device."""
    results = []
    for place in ("cpu", "cuda"):
        leaves = [t.to(place).detach().requires_grad_() for t in tensors]
        result = call(*leaves)
        result.float().square().sum().backward()
        results.append([result, *(leaf.grad for leaf in leaves)])
    return results[0], results[1]


def same(on_host: list[Any], on_device: list[Any], within: float) -> bool:
    pairs = zip(on_host, on_device, strict=True)
    return all(
        torch.allclose(h.detach().float(), d.detach().cpu().float(), within, within)
        for h, d in pairs
    )


def seen(causal: Any) -> Any:
    return torch.ones(6, 6, device=causal.device).tril() > 0


@pytest.mark.parametrize(
    "call",
    [
        attend,
        lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.3),
        lambda q, k, v: attend(q, k, v, attn_mask=seen(q)),
        lambda q, k, v: attend(q, k, v, attn_mask=-(q.detach()[..., :6] ** 2)),
    ],
)
def test_attention_in_float32_is_the_efficient_kernel_s(
    call: Callable[..., Any],
) -> None:
    on_host, on_device = both(call, inputs())

    assert same(on_host, on_device, 1e-4)
    assert on_device[0].grad_fn.name() == EFFICIENT


def test_a_mask_that_learns_gets_its_gradient() -> None:
    tensors = [*inputs(), torch.randn(6, 6)]

    on_host, on_device = both(lambda q, k, v, m: attend(q, k, v, attn_mask=m), tensors)

    assert same(on_host, on_device, 1e-4)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda q, k, v: attend(q, k, v, is_causal=True), FLASH),
        (lambda q, k, v: attend(q, k[:, :2], v[:, :2], enable_gqa=True), FLASH),
        (lambda q, k, v: attend(q[..., :5], k[..., :5], v[..., :5]), "SliceBackward0"),
        (lambda q, k, v: attend(q, k, v, attn_mask=seen(q)), EFFICIENT),
    ],
)
def test_attention_in_bfloat16_is_the_flash_kernel_s_unless_masked(
    call: Callable[..., Any], name: str
) -> None:
    on_host, on_device = both(call, inputs(torch.bfloat16))

    assert same(on_host, on_device, 0.1)
    assert on_device[0].grad_fn.name() == name


def test_what_no_fused_kernel_takes_is_composed() -> None:
    tensors = inputs(torch.float64)

    on_host, on_device = both(attend, tensors)
    odd, odd_on_device = both(attend, inputs(width=5))

    assert same(on_host, on_device, 1e-9)
    assert same(odd, odd_on_device, 1e-4)
    assert on_device[0].grad_fn.name() == "UnsafeViewBackward0"
    assert odd_on_device[0].grad_fn.name() == "UnsafeViewBackward0"


def test_the_user_s_choice_of_kernels_is_kept() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        _, composed = both(attend, inputs(torch.bfloat16))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        leaves = [t.cuda().requires_grad_() for t in inputs(torch.bfloat16)]
        efficient = attend(*leaves)

    assert composed[0].grad_fn.name() not in {FLASH, EFFICIENT}
    assert efficient.grad_fn.name() == EFFICIENT


def test_inference_mode_takes_the_same_kernel() -> None:
    query, key, value = inputs(torch.bfloat16)

    with torch.inference_mode():
        on_device = attend(query.cuda(), key.cuda(), value.cuda())

    assert same([attend(query, key, value)], [on_device], 0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_the_same_weights_in_backward(dtype: Any) -> None:
    query, key, value = (t.to(dtype).cuda() for t in inputs())
    value.requires_grad_()

    mixed = attend(query, key, value, dropout_p=0.5)
    mixed.sum().backward()

    # the result is linear in the values
    projected = (value.float() * value.grad.float()).sum()
    assert projected.item() == pytest.approx(mixed.float().sum().item(), abs=0.5)
    assert value.grad.float().std() > 0.1


def test_the_gradient_through_dropout_is_that_of_the_weights_drawn() -> None:
    query, key, value = (t.cuda() for t in inputs())
    query.requires_grad_()

    def total(moved: Any) -> Any:
        torch.manual_seed(1)
        return attend(moved, key, value, dropout_p=0.5).sum()

    total(query).backward()
    with torch.no_grad():
        way = torch.randn_like(query)
        slope = (total(query + 0.01 * way) - total(query - 0.01 * way)) / 0.02

    assert (query.grad * way).sum().item() == pytest.approx(slope.item(), rel=0.02)


def test_a_query_that_sees_nothing_gets_nothing() -> None:
    query, key, value = (t.cuda() for t in inputs())
    nothing = torch.zeros(6, 6, dtype=torch.bool, device="cuda")

    assert attend(query, key, value, attn_mask=nothing).abs().sum().item() == 0


@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
@pytest.mark.parametrize("values", [True, False])
def test_attention_keeps_a_number_a_query_in_place_of_the_weights(
    dropout_p: float,
    *,
    values: bool,
) -> None:
    tokens, heads = 256, 2
    query = torch.randn(1, heads, tokens, 8, device="cuda", requires_grad=True)

    with simulated_gpu(values=values), watching_memory(0) as audit:
        before = audit.live.now_bytes
        mixed = attend(query, query, query, dropout_p=dropout_p)
        after = audit.live.now_bytes
        mixed.sum().backward()

    output, log_sums = tokens * heads * 8 * 4, tokens * heads * 4
    assert mixed.requires_grad
    assert after - before == output + log_sums


@pytest.mark.parametrize("activate", [F.silu, F.mish])
def test_the_backward_of_an_activation_is_one_kernel_and_takes_its_result_alone(
    activate: Callable[..., Any],
) -> None:
    mebibyte = torch.randn(512, 512, device="cuda", requires_grad=True)

    with simulated_gpu() as gpu, watching_memory(0):
        result = activate(mebibyte)
        gradient = torch.ones_like(result)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        gpu.begin_step()
        torch.autograd.grad(result, mebibyte, gradient)
        peak = torch.cuda.max_memory_allocated()

    assert gpu.so_far().totals.counts["launches"] == 1
    assert peak - before == 2**20


@pytest.mark.parametrize("activate", [F.silu, F.mish])
def test_an_activation_has_the_host_s_first_and_second_derivatives(
    activate: Callable[..., Any],
) -> None:
    def derived(start: Any) -> list[Any]:
        leaf = start.requires_grad_()
        (first,) = torch.autograd.grad(activate(leaf).sum(), leaf, create_graph=True)
        return [first, *torch.autograd.grad(first.sum(), leaf)]

    host = torch.linspace(-2, 2, 9)

    assert same(derived(host.clone()), derived(host.cuda()), 1e-5)


@pytest.mark.parametrize("shape", [(8,), (6, 8)])
@pytest.mark.parametrize("with_weight", [True, False])
def test_rms_norm_is_the_fused_kernel_s(
    shape: tuple[int, ...],
    *,
    with_weight: bool,
) -> None:
    tensors = inputs()[:1]
    if with_weight:
        tensors.append(torch.randn(shape))

    on_host, on_device = both(lambda x, w=None: F.rms_norm(x, shape, w, 1e-5), tensors)

    assert same(on_host, on_device, 1e-4)
    assert on_device[0].grad_fn.name() == "FusedRmsNormBackward0"


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_leave_their_memory_unchecked(kind: type[nn.Module]) -> None:
    layer = kind(4, 4).cuda()
    batch = torch.randn(3, 2, 4, device="cuda")

    with watching_memory() as audit:
        audit.step(lambda: layer(batch)[0].sum().backward())

    name = {"RNN": "rnn_tanh"}.get(kind.__name__, kind.__name__.lower())
    reason = (
        "cuDNN keeps memory of its own for it, which only a GPU can show; what backward "
        "cannot do without is assumed"
    )
    assert list(audit.live.unchecked) == [(f"aten::{name}", reason)]
