"""Snippets of CUDA code, each with what it does to the host on a CUDA device.

The expectations were read off torch 2.13's sources and libraries, and some off its own
test of the sync warning. Each snippet runs as a statement in a fresh ``SETTING``.
"""

from __future__ import annotations

from typing import Final


SETTING: Final = """
import io
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
grid = torch.randn(8, 4, device="cuda")
row = torch.randn(8, device="cuda")
labels = torch.randint(0, 4, (8,), device="cuda")
mask = grid > 0
row_mask = row > 0
number = torch.randn((), device="cuda")
two = torch.tensor(2, device="cuda")
repeats = torch.full((8,), 2, device="cuda")
square = grid.T @ grid + 4 * torch.eye(4, device="cuda")
weight = nn.Parameter(grid.abs() + 1)
scale = nn.Parameter(torch.ones((), device="cuda"))

on_host = torch.randn(8, 4)
pinned = torch.randn(8, 4).pin_memory()
host_places = torch.tensor([0, 1])
host_mask = torch.rand(8) > 0.5

net = nn.Sequential(
    nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 4)
).to("cuda")
embedding = nn.Embedding(10, 4).to("cuda")
adamw = torch.optim.AdamW(net.parameters(), lr=1e-3)
sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
loss = F.cross_entropy(net(grid), labels)
loss.backward()
scaler = torch.amp.GradScaler("cuda")

stream = torch.cuda.Stream()
event = torch.cuda.Event()
event.record()
"""


WAITS: Final[dict[str, tuple[str, ...]]] = {
    "numbers and arithmetic": (
        "grid.sum().item()",
        "float(grid.sum())",
        "bool(grid.sum() > 0)",
        "row[row_mask] = number",
        "grid[mask] = torch.zeros(int(mask.sum()), device='cuda')",
        "torch.equal(grid, grid.clone())",
        "torch.allclose(grid, grid)",
        "torch.testing.assert_close(grid, grid.clone())",
        "torch.arange(two)",
        "torch.zeros(two, device='cuda')",
        "list(range(two))",
        "row[host_places] = number",
        "row[labels] = 1.0",
        "row[0] = 5.0",
        "torch.normal(grid, grid.abs())",
        "torch.linspace(number, number + 1, 5)",
        "max(list(row))",
        "mask.any().item()",
        "torch.isclose(row, row).all() and 1",
        "number in row",
        "hash(float(number))",
        "torch.istft(torch.stft(torch.randn(400, device='cuda'), 64, window=torch.ones(64, device='cuda'), return_complex=True), 64, window=torch.ones(64, device='cuda'))",
        "torch.distributions.Normal(row, row.abs() + 1, validate_args=True)",
    ),
    "indexing": (
        "int(labels[0])",
        "grid[mask]",
        "grid.index_put_((mask,), number, accumulate=True)",
        "grid.masked_fill(mask, number)",
        "row.index_fill(0, labels, number)",
        "grid[two]",
        "grid[:two]",
        "[float(t) for t in row]",
        "grid[host_places]",
        "(lambda z: z[mask].sum().backward())(grid.clone().requires_grad_())",
        "grid[[0, 1]]",
        "grid.index_fill_(0, labels, number)",
    ),
    "copies to the host": (
        "grid.cpu()",
        "grid.to('cpu')",
        "grid.tolist()",
        "row[:2].tolist()",
        "str(grid)",
        "f'{loss:.3f}'",
        "repr(number)",
        "grid.cpu().numpy()",
    ),
    "sizes that depend on values": (
        "grid.nonzero()",
        "torch.where(mask)",
        "torch.argwhere(mask)",
        "torch.unique(labels)",
        "torch.unique_consecutive(labels)",
        "torch.unique(grid, dim=0)",
        "grid.masked_select(mask)",
        "torch.repeat_interleave(grid, repeats, dim=0)",
        "torch.bincount(labels)",
        "torch.histc(row, 10)",
        "torch.combinations(labels)",
        "torch.sparse_coo_tensor(torch.stack([labels, labels]), row, (8, 8)).coalesce()",
        "grid.to_sparse()",
    ),
    "host tensors": (
        "torch.tensor([1, 2, 3], device='cuda')",
        "torch.tensor(3.0, device='cuda')",
        "torch.as_tensor([1.0, 2.0], device='cuda')",
        "grid.new_tensor([1.0, 2.0])",
        "on_host.to('cuda')",
        "on_host.cuda()",
        "pinned.to('cuda')",
        "on_host.copy_(grid)",
        "on_host.copy_(grid, non_blocking=True)",
        "torch.from_numpy(on_host.numpy()).to('cuda')",
        "F.ctc_loss(torch.randn(6, 2, 5, device='cuda').log_softmax(-1), torch.ones(2, 3, dtype=torch.long, device='cuda'), torch.tensor([6, 6], device='cuda'), torch.tensor([3, 3], device='cuda'))",
        "torch.tensor_split(row, torch.tensor([2, 4], device='cuda').cpu())",
    ),
    "explicit syncs and queries": (
        "torch.cuda.synchronize()",
        "stream.synchronize()",
        "event.synchronize()",
    ),
    "whole models and their losses": (
        "F.one_hot(labels)",
        "math.isnan(loss)",
        "F.gaussian_nll_loss(row, row, row.abs())",
    ),
    "linear algebra": (
        "torch.linalg.inv(square)",
        "torch.linalg.cholesky(square)",
        "torch.linalg.solve(square, square)",
        "torch.cov(grid)",
        "torch.linalg.matrix_exp(square)",
        "torch.linalg.eigh(square)",
        "torch.linalg.svd(grid)",
        "torch.linalg.matrix_rank(grid)",
        "torch.linalg.pinv(grid)",
        "torch.linalg.eigvals(square)",
        "torch.linalg.lstsq(grid, grid)",
    ),
    "optimizers and scaling": (
        "nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)",
        "scaler.scale(loss) is None or scaler.step(sgd)",
        "(scaler.scale(loss), scaler.get_scale())",
        "torch.optim.lr_scheduler.ReduceLROnPlateau(sgd).step(loss)",
        "torch.optim.LBFGS([nn.Parameter(row.clone())]).step(lambda: (row ** 2).sum().requires_grad_())",
    ),
    "backward formulas that read values": (
        "weight.prod().backward()",
        "weight.prod(dim=1).sum().backward()",
        "weight.cumprod(dim=0).sum().backward()",
        "grid.masked_fill(mask, scale).sum().backward()",
        "weight[mask].sum().backward()",
    ),
    "saving and building": (
        "torch.save(net.state_dict(), io.BytesIO())",
        "nn.BatchNorm1d(4, device='cuda')",
        "torch.tensor([number, number])",
    ),
}
"""The host waits."""


RUNS_ON: Final[dict[str, tuple[str, ...]]] = {
    "optimizers and scaling": (
        "scaler.get_scale()",
        "adamw.step()",
        "sgd.step()",
        "adamw.zero_grad()",
        "nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
        "scaler.scale(loss)",
        "(scaler.scale(loss), scaler.unscale_(sgd))",
        "[p.data.lerp_(p.data, 0.1) for p in net.parameters()]",
        "torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 10).step()",
    ),
    "whole models and their losses": (
        "net(grid)",
        "F.cross_entropy(net(grid), labels).backward()",
        "F.one_hot(labels, 4)",
        "F.scaled_dot_product_attention(*[torch.randn(1, 2, 4, 8, device='cuda')] * 3, is_causal=True)",
        "embedding(labels).sum().backward()",
        "F.embedding(labels, grid, max_norm=1.0)",
        "F.cross_entropy(net(grid), labels, ignore_index=1)",
        "number.add_(loss.detach())",
        "torch.utils.checkpoint.checkpoint(net, grid, use_reentrant=False).sum().backward()",
        "F.dropout(grid) + F.layer_norm(grid, (4,))",
        "torch.stack([loss.detach() for _ in range(3)]).mean()",
        "F.nll_loss(grid.log_softmax(-1), labels)",
        "net.state_dict()",
    ),
    "indexing": (
        "grid.masked_fill(mask, 0.0)",
        "row[labels]",
        "row[host_mask]",
        "grid[1:3, None, ..., 0]",
        "grid[0]",
        "len(grid) + grid.numel() + grid.shape[0] + grid.dim()",
        "torch.cat([grid, grid]).view(-1).sum()",
        "grid.gather(1, labels[:, None])",
        "grid.scatter_add(1, labels[:, None], grid[:, :1])",
        "grid.index_select(0, labels)",
        "row.masked_scatter(row_mask, row)",
        "torch.bucketize(row, torch.randn(3, device='cuda').sort()[0])",
        "torch.nn.utils.rnn.pad_sequence([row, row[:3]])",
    ),
    "numbers and arithmetic": (
        "row[row_mask] = 1.0",
        "row[labels] = number",
        "torch.randperm(20000, device='cuda')",
        "torch.any(number)",
        "torch.multinomial(grid.softmax(-1), 1)",
        "torch.randn(4, device='cuda') + torch.arange(4, device='cuda')",
        "torch.full((3,), 2.0, device='cuda')",
        "torch.zeros_like(grid)",
        "grid.half().float()",
        "grid[0] = 5.0",
        "grid[:, 0] = 1.0",
        "grid.topk(2)",
        "grid.sort()",
        "grid.cumsum(0)",
        "grid.median()",
        "torch.quantile(row, 0.5)",
        "grid.std()",
        "number.fill_(number.clone())",
        "grid.fill_(3.0)",
        "(grid.argmax(-1) == labels).float().mean()",
        "grid.unsqueeze(0).expand(3, -1, -1).contiguous()",
        "torch.clamp(grid, min=number)",
    ),
    "sizes that depend on values": (
        "row.nanmedian()",
        "torch.where(mask, grid, grid * 2)",
        "torch.repeat_interleave(grid, 2, dim=0)",
        "torch.repeat_interleave(grid, repeats, dim=0, output_size=16)",
        "torch.histc(row, 10, 0, 1)",
        "torch.isfinite(grid).all()",
        "torch._assert_async(torch.isfinite(grid).all())",
        "row.count_nonzero()",
    ),
    "host tensors": (
        "torch.scalar_tensor(3.0, device='cuda')",
        "grid * torch.tensor(2.0)",
        "pinned.to('cuda', non_blocking=True)",
        "torch.tensor(3.0).item()",
        "on_host.sum().item()",
        "on_host[on_host > 0]",
        "str(on_host)",
    ),
    "copies to the host": ("grid.to('cpu', non_blocking=True)",),
    "linear algebra": (
        "torch.linalg.inv_ex(square)",
        "torch.linalg.cholesky_ex(square)",
        "torch.linalg.det(square)",
        "row.mode()",
    ),
    "explicit syncs and queries": (
        "(stream.wait_stream(torch.cuda.current_stream()), event.record(), event.query())",
        "torch.cuda.memory_allocated()",
    ),
    "backward formulas that read nothing": (
        "weight.sum(dim=1).prod(dim=0).detach()",
        "grid.masked_fill(mask, 0.0).sum()",
        "weight.masked_fill(mask, 0.0).sum().backward()",
        "weight.cumsum(dim=0).sum().backward()",
        "weight[labels].sum().backward()",
    ),
}
"""The host does not wait."""


MAY_WAIT: Final[dict[str, tuple[str, ...]]] = {
    "host tensors": ("on_host.to('cuda', non_blocking=True)",),
    "explicit syncs and queries": ("torch.cuda.empty_cache()",),
    "sizes that depend on values": ("torch.rand(3000, device='cuda').mode()",),
}
"""Sizes, a library or the allocator decide."""
