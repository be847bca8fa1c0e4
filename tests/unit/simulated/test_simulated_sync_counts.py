"""How often the host waits, as counted in torch 2.13 over stub CUDA or read there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.sync_rules import release_of


BEFORE_2_14 = release_of(torch.__version__) < (2, 14)
"""The host checks deviations; since then the GPU does."""

BEFORE_2_15 = release_of(torch.__version__) < (2, 15)
"""MAGMA factors matrices, and waits; since then cuSOLVER does."""


SETTING = """
import torch
import torch.nn.functional as F

x = torch.rand(3, 4, device="cuda")
square = torch.rand(3, 3, device="cuda") + 3 * torch.eye(3, device="cuda")
row = torch.rand(4, device="cuda")
empty = torch.empty(0, 0, device="cuda")
nothing = torch.empty(0, device="cuda")
log_probs = torch.randn(5, 2, 4, device="cuda").log_softmax(2).requires_grad_()
targets = torch.randint(1, 4, (2, 3), device="cuda")
inputs_at, targets_at = torch.tensor([5, 5]), torch.tensor([3, 3])
inputs_there, targets_there = inputs_at.cuda(), targets_at.cuda()
loss = F.ctc_loss(log_probs, targets, (5, 5), (3, 3))
places = torch.tensor([[0, 0, 1]]).cuda()
sparse = torch.sparse_coo_tensor(places, torch.ones(3).cuda(), (3,))
edges = torch.tensor([[0, 1, 2], [1, 2, 0]]).cuda()
graph = torch.sparse_coo_tensor(edges, torch.ones(3).cuda(), (3, 3), check_invariants=False)
known = graph.detach()._coalesced_(True).requires_grad_()
places_here, mask_here = torch.tensor([0, 1]), torch.tensor([True, False, True])
eigen = torch.linalg.eig(square.clone().requires_grad_())
jagged = torch.nested.nested_tensor([row, row[:2]], layout=torch.jagged)
normal = torch.distributions.Normal(row, row + 1, validate_args=False)
"""

COUNTS: dict[str, tuple[int, int]] = {
    "torch.isin(targets, torch.arange(100, device='cuda'))": (3, 1),
    "torch.isin(targets, torch.arange(100, device='cuda'), assume_unique=True)": (1, 1),
    "torch.isin(targets, torch.arange(3, device='cuda'))": (0, 0),
    "torch.tensor([row[0], row[1]])": (2, 0),
    "sparse + sparse": (5, 0),
    "graph + graph": (0, 0),
    "F.cross_entropy(x, targets[0], row, label_smoothing=0.1)": (1, 0),
    "F.cross_entropy(x, targets[0], row, label_smoothing=0.1, reduction='sum')": (0, 0),
    "F.cross_entropy(x, targets[0], label_smoothing=0.1)": (0, 0),
    "torch.linalg.svd(x)": (2, 1),
    "torch.linalg.svd(x, driver='gesvd')": (1, 0),
    "torch.linalg.svdvals(x)": (2, 1),
    "torch.linalg.pinv(x)": (2, 1),
    "torch.linalg.pinv(square, hermitian=True)": (1, 0),
    "torch.linalg.matrix_rank(x)": (2, 1),
    "torch.linalg.norm(x, 'nuc')": (2, 1),
    "torch.svd_lowrank(x, 2)": (2, 1),
    "torch.linalg.eigvals(square)": (2, 0),
    "torch.linalg.eigvals(empty)": (2, 0),
    "torch.linalg.eigvals(square.clone().requires_grad_())": (3, 0),
    "torch.linalg.eig(square)": (3, 0),
    "torch.linalg.eig(empty)": (3, 0),
    "eigen.eigenvectors.abs().sum().backward(retain_graph=True)": (2, 0),
    "eigen.eigenvalues.abs().sum().backward(retain_graph=True)": (1, 0),
    "torch.linalg.eigvalsh(square)": (1, 0),
    "torch.linalg.eigvalsh(empty)": (0, 0),
    "torch.linalg.inv(square)": (1, 0),
    "torch.linalg.inv(torch.empty(0, 3, 3, device='cuda'))": (1, 0),
    "torch.linalg.lu_factor_ex(x)": (3 * BEFORE_2_15, 0),
    "torch.linalg.lu_factor_ex(square)": (0, 0),
    "torch.linalg.lu_factor_ex(torch.stack([x, x]))": (3 * BEFORE_2_15, 0),
    "torch.linalg.lu_factor_ex(square.expand(99, 3, 3))": (0, 0),
    "torch.linalg.lu_factor_ex(torch.rand(16, 40, 40, device='cuda'))": (0, 0),
    "torch.linalg.lu_factor_ex(torch.rand(17, 40, 40, device='cuda'))": (
        3 * BEFORE_2_15,
        0,
    ),
    "torch.linalg.lu_factor_ex(torch.rand(17, 30, 30, device='cuda'))": (
        2 * BEFORE_2_15,
        0,
    ),
    "torch.linalg.lu_factor_ex(torch.rand(2, 150, 150, device='cuda'))": (
        3 * BEFORE_2_15,
        0,
    ),
    "torch.linalg.solve_ex(square, square)": (0, 0),
    "torch.linalg.solve_ex(square, square, check_errors=True)": (1, 0),
    "torch.linalg.inv_ex(square, check_errors=True)": (1, 0),
    "torch.linalg.inv_ex(torch.empty(0, 3, 3, device='cuda'), check_errors=True)": (
        1,
        0,
    ),
    "torch.linalg.cholesky_ex(torch.eye(3, device='cuda'), check_errors=True)": (1, 0),
    "torch.linalg.lu_factor_ex(square, check_errors=True)": (1, 0),
    "torch.linalg.ldl_factor_ex(square, check_errors=True)": (1, 0),
    "torch.linalg.ldl_factor_ex(square)": (0, 0),
    "torch.linalg.ldl_solve(*torch.linalg.ldl_factor_ex(square)[:2], square)": (1, 0),
    "torch.linalg.lstsq(square, square)": (1, 0),
    "torch.linalg.matrix_exp(square)": (6, 5),
    "torch.linalg.matrix_exp(1e-4 * torch.eye(3, device='cuda'))": (2, 2),
    "torch.linalg.matrix_exp(1e-2 * torch.eye(3, device='cuda'))": (4, 4),
    "torch.linalg.matrix_exp(0.3 * torch.eye(3, device='cuda'))": (6, 6),
    "torch.linalg.matrix_exp(torch.eye(3, device='cuda'))": (3, 3),
    "torch.linalg.matrix_exp(torch.stack([square, square]))": (3, 2),
    "torch.linalg.matrix_exp(square[:1, :1])": (0, 0),
    "torch.bincount(places[0])": (2, 1),
    "torch.bincount(places[0].byte())": (1, 0),
    "torch.bincount(nothing.long())": (0, 0),
    "row.mode()": (0, 0),
    "jagged.unbind()": (1, 1),
    "jagged[0]": (1, 1),
    "jagged.cpu()": (2, 2),
    "jagged.to('cpu')": (2, 2),
    "jagged.to('cpu', torch.float16)": (2, 2),
    "jagged.to('cpu', non_blocking=True)": (1, 1),
    "torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged).to('cuda')": (
        2,
        2,
    ),
    "row.untyped_storage()[0]": (1, 0),
    "row.untyped_storage().tolist()": (16, 0),
    "row.untyped_storage().to(device='cpu')": (1, 1),
    "row.untyped_storage().copy_(torch.ones(4).untyped_storage())": (1, 1),
    "torch.ones(4).untyped_storage().copy_(row.untyped_storage())": (1, 1),
    "row.untyped_storage().copy_(row.untyped_storage().clone())": (0, 0),
    "torch.ones(4).untyped_storage().cuda()": (1, 1),
    "torch.ones(4).storage().cuda()": (1, 1),
    "row.storage().cuda().clone()": (0, 0),
    "sparse.coalesce()": (5, 0),
    "torch.sparse.mm(graph, x)": (5, 0),
    "graph @ x": (5, 0),
    "graph.sqrt()": (5, 0),
    "graph.norm()": (5, 0),
    "graph.neg()": (0, 0),
    "graph.to_dense()": (0, 0),
    "square.add_(graph)": (0, 0),
    "torch.sparse.sum(graph, 0)": (10, 0),
    "torch.sparse.sum(known, 0)": (5, 0),
    "torch.sparse.mm(known, x)": (0, 0),
    "torch.sparse.mm(known.detach(), known.detach())": (2, 0),
    "torch.sparse.softmax(known.detach(), 1)": (7, 0),
    "torch.sparse.log_softmax(known, 1).to_dense().sum().backward()": (16, 0),
    "x.unique()": (1, 0),
    "x.unique(dim=0)": (3, 0),
    "x.unique(dim=0, return_counts=True)": (4, 0),
    "x.unique(dim=0, return_inverse=True)": (6, 0),
    "x.unique(dim=0, return_inverse=True, return_counts=True)": (7, 0),
    "x.unique_consecutive()": (1, 0),
    "x.unique_consecutive(dim=0)": (2, 0),
    "x.unique_consecutive(dim=0, return_inverse=True)": (5, 0),
    "normal.sample()": (2 * BEFORE_2_14, 0),
    "torch.normal(0.0, row)": (2 * BEFORE_2_14, 0),
    "torch.normal(0.0, row, out=row.clone())": (1 * BEFORE_2_14, 0),
    "torch.normal(0.0, nothing)": (0, 0),
    "torch.cholesky(empty)": (0, 0),
    "torch.cholesky_inverse(empty)": (0, 0),
    "torch.cholesky_inverse(square)": (0, 0),
    "torch.svd(empty)": (0, 0),
    "torch.pinverse(empty)": (0, 0),
    "torch.searchsorted(nothing, nothing, sorter=nothing.long())": (0, 0),
    "torch.searchsorted(row, row, sorter=row.argsort())": (2, 0),
    "torch.where(x > 0, x, torch.tensor(0.0))": (1, 1),
    "torch.where(x > 0, torch.tensor(1.0), torch.tensor(0.0))": (2, 2),
    "torch.where(x > 0, x, 0.0)": (0, 0),
    "x[torch.tensor([0, 1])]": (1, 1),
    "x[places[0]] = 0": (1, 1),
    "x[places_here] = 0": (2, 2),
    "x[places_here, places_here] = torch.tensor(1.0)": (3, 3),
    "x[mask_here] = 0": (1, 1),
    "x[x > 1] = 0": (0, 0),
    "x[(x > 1)[:, 0], places[0, :0]] = 0": (2, 1),
    "x.sum().tolist()": (1, 1),
    "x.sum().item()": (1, 0),
    "torch.fake_quantize_per_channel_affine(x, row, row.int(), 1, -128, 127)": (2, 0),
    "torch.fake_quantize_per_channel_affine(x, row, row.half(), 1, -128, 127)": (0, 0),
    "F.ctc_loss(log_probs, targets, (5, 5), (3, 3))": (5, 5),
    "F.ctc_loss(log_probs, targets, (5, 5), (3, 3), reduction='sum')": (4, 4),
    "F.ctc_loss(log_probs, targets, inputs_at, targets_at)": (6, 6),
    "F.ctc_loss(log_probs, targets, inputs_there, targets_there)": (8, 8),
    "loss.backward()": (3, 3),
}

if not BEFORE_2_15:
    del COUNTS["torch.cholesky(empty)"]  # torch has it no more
"""Syncs, and how many of them copy from or to pageable memory."""


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[SimulatedGpu]:
    threads = torch.get_num_threads()
    # MKL's LU of a batch, with threads inside of torch's, has waited for them for ever.
    torch.set_num_threads(1)
    with simulated_gpu() as entered:
        yield entered
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("snippet", COUNTS)
def test_the_host_waits_as_often_as_counted(gpu: SimulatedGpu, snippet: str) -> None:
    names: dict[str, Any] = {}
    exec(SETTING, names)  # noqa: S102, our own text
    gpu.begin_step()
    exec(snippet, names)  # noqa: S102

    audit = gpu.end_step()

    found = (audit.totals.syncs, audit.totals.counts["pageable_copies"])
    assert (found, audit.totals.inconclusive) == (COUNTS[snippet], 0)


def test_copied_lengths_have_their_bytes(gpu: SimulatedGpu) -> None:
    log_probs = torch.randn(5, 2, 4, device="cuda").log_softmax(2)
    targets = torch.ones(2, 3, device="cuda", dtype=torch.long)
    gpu.begin_step()

    torch.nn.functional.ctc_loss(log_probs, targets, (5, 5), (3, 3), reduction="sum")

    assert gpu.end_step().totals.counts["h2d_bytes"] == 3 * 2 * 8


BYTES: dict[str, tuple[int, int]] = {
    "x.to('cpu', torch.float64)": (0, 12 * 4),
    "x.to('cpu', torch.float64, non_blocking=True)": (0, 12 * 8),
    "x.to('cpu', torch.float16)": (0, 12 * 4),
    "inputs_at.to('cuda', torch.int32)": (2 * 4, 0),
    "inputs_at.to('cuda', torch.int32, non_blocking=True)": (2 * 8, 0),
    "x[0].copy_(torch.ones(4, dtype=torch.float64))": (4 * 4, 0),
    "torch.linalg.svd(torch.stack([x, x]))": (0, 2 * 4),
    "torch.bincount(places[0])": (0, 8),
    "torch.linalg.matrix_exp(square)": (8 + 100 + 8, 4 + 16),
    "x[mask_here]": (2 * 8, 0),
    "x[mask_here] = 0": (2 * 8 + 4, 0),
    "x[places_here] = 0": (2 * 8 + 4, 0),
}
"""Bytes to the device, and to the host."""


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # once in a process
@pytest.mark.parametrize("snippet", BYTES)
def test_bytes_are_those_that_cross_the_bus(gpu: SimulatedGpu, snippet: str) -> None:
    names: dict[str, Any] = {}
    exec(SETTING, names)  # noqa: S102, our own text
    gpu.begin_step()
    exec(snippet, names)  # noqa: S102

    totals = gpu.end_step().totals

    assert (totals.counts["h2d_bytes"], totals.counts["d2h_bytes"]) == BYTES[snippet]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_lengths_on_the_host_give_the_loss_of_the_host(mode: Any) -> None:
    log_probs = torch.randn(5, 2, 4).log_softmax(2)
    targets, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    ctc_loss, inputs = torch.nn.functional.ctc_loss, torch.tensor([5, 4])
    expected = ctc_loss(log_probs, targets, inputs, lengths)

    with mode():
        found = ctc_loss(log_probs.cuda(), targets.cuda(), inputs, lengths)

    assert found.is_cuda
    assert found.item() == pytest.approx(expected.item())


def test_the_median_without_nan_is_found_on_the_device(gpu: SimulatedGpu) -> None:
    row = torch.rand(4, device="cuda")
    gpu.begin_step()

    row.nanmedian()

    assert gpu.end_step().findings == ()


@pytest.mark.usefixtures("gpu")
def test_a_copied_parameter_has_no_gradient_and_a_copied_tensor_has_its() -> None:
    tensor = torch.ones(2, device="cuda", requires_grad=True)
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    parameter.note = tensor.note = "kept"
    (tensor.sum() + parameter.sum()).backward()

    copies = [copy.deepcopy(tensor), copy.deepcopy(parameter)]

    assert [each.grad is None for each in copies] == [False, True]
    assert [hasattr(each, "note") for each in copies] == [True, False]
    assert isinstance(copies[1], torch.nn.Parameter)
    assert copies[1].requires_grad
