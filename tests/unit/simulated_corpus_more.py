"""A second corpus of CUDA code, written before it was run and without the rules at hand.

Each snippet runs as a statement in a fresh ``SETTING``; the expectations come from CUDA's
semantics and torch 2.13's sources.
"""

from __future__ import annotations

from typing import Final


SETTING: Final = """
import copy
import io
import json
import logging
import math
import pickle
import statistics

import torch
import torch.nn.functional as F
from torch import distributions
from torch import nn
from torch.nn.utils import prune
from torch.utils import checkpoint
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
x = torch.randn(16, 8, device="cuda")
y = torch.randn(16, device="cuda")
target = torch.randint(0, 5, (16,), device="cuda")
ids = torch.randint(0, 20, (4, 6), device="cuda")
seq = torch.randn(4, 6, 8, device="cuda")
image = torch.randn(2, 3, 8, 8, device="cuda")
keep = x > 0
total = y.square().mean()
shares = torch.linspace(0.1, 0.9, 3, device="cuda")
square = x.T @ x + 8 * torch.eye(8, device="cuda")
leaf = x.clone().requires_grad_()
padding = torch.zeros(4, 6, dtype=torch.bool, device="cuda")
padding[1, 4:] = True

host = torch.randn(16, 8)
pinned = torch.randn(16, 8).pin_memory()

net = nn.Sequential(
    nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 5)
).cuda()
table = nn.Embedding(20, 8, device="cuda")
lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True).cuda()
gru = nn.GRU(8, 8, batch_first=True, bidirectional=True).cuda()
attention = nn.MultiheadAttention(8, 2, batch_first=True).cuda()
encoder = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1
).cuda()
cumulative = nn.BatchNorm1d(8, momentum=None).cuda()
observer = torch.ao.quantization.MinMaxObserver().cuda()
moving = torch.ao.quantization.MovingAverageMinMaxObserver().cuda()
averaged = torch.optim.swa_utils.AveragedModel(net)
shadow = copy.deepcopy(net).requires_grad_(False)

F.cross_entropy(net(x), target).backward()
adamw = torch.optim.AdamW(net.parameters(), lr=1e-3)
adamw.step()
fused = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
sgd = torch.optim.SGD(net.parameters(), lr=1e-2)
rate = torch.full((), 1e-3, device="cuda")
scaler = torch.amp.GradScaler("cuda")
scaled = scaler.scale(total)

places = torch.stack([target % 5, (target + 1) % 5])
coo = torch.sparse_coo_tensor(places, y, (5, 5))
coalesced = coo.coalesce()
trainable = coalesced.clone().requires_grad_()
matrices = torch.sparse_coo_tensor(torch.stack([target % 2, *places]), y, (2, 5, 5)).coalesce()
dense = torch.randn(5, 3, device="cuda")

stream = torch.cuda.Stream()
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
buffer = io.BytesIO()
saved = io.BytesIO()
torch.save({"w": host}, saved)
saved.seek(0)


class ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 if grad.abs().max() > 0 else grad
"""


WAITS: Final[dict[str, tuple[str, ...]]] = {
    "python looks at a value": (
        "sorted(y)",
        "max(y.mean(), y.std())",
        "min([total, total + 1], key=float)",
        "any(keep[0])",
        "y.mean() in [1.0, 2.0]",
        "[y.mean() + 1, total].index(total.clone())",
        "{int(t) for t in target}",
        "(total > 0) and (total < 1)",
        "total or 1.0",
        "[1, 2, 3, 4, 5][target[0]]",
        "complex(total)",
        "math.floor(total)",
        "raise_it = 1 if torch.isnan(total) else 0",
        "all(torch.isfinite(p.grad).all() for p in net.parameters())",
        "max(p.grad.abs().max() for p in net.parameters())",
    ),
    "logging and metrics": (
        "'%.3f' % y.mean()",
        "logging.getLogger('run').warning('loss %s', total)",
        "'{}'.format(total)",
        "json.dumps({'loss': total.item()})",
        "str(net[0].weight)",
        "statistics.mean(y.tolist())",
        "torch.bincount(target * 5 + net(x).argmax(1), minlength=25).reshape(5, 5)",
        "total.isnan().any().cpu()",
    ),
    "a number taken from a tensor": (
        "torch.full((2,), y[0], device='cuda')",
        "x.clamp(0, total)",
        "torch.add(x, x, alpha=total)",
        "x.addcmul_(x, x, value=total)",
        "torch.topk(y, target.max() + 1)",
        "x.narrow(0, target[0], 1)",
        "x[target[0] : target[0] + 2]",
        "torch.normal(0.0, y.exp())",
        "torch.optim.Adam(net.parameters(), lr=rate).step()",
    ),
    "indexing": (
        "x[keep.any(dim=1)]",
        "x[keep] += 1",
        "x[torch.arange(16), target]",
        "x[:, [0, 2]]",
        "x[0] = host[0]",
        "F.cross_entropy(net(x), target, reduction='none')[target > 1].mean()",
        "nn.CrossEntropyLoss(torch.ones(5, device='cuda'), label_smoothing=0.1)(net(x), target).backward()",
        "torch.isin(target, torch.arange(100, device='cuda'))",
        "prune.l1_unstructured(net[0], 'weight', amount=0.5)",
        "torch.masked.sum(x, mask=keep)",
    ),
    "data moves": (
        "torch.zeros(16).pin_memory().copy_(y)",
        "host.to(x)",
        "x.copy_(host)",
        "y.to(device='cpu', dtype=torch.float16)",
        "x.type('torch.FloatTensor')",
        "torch.asarray([1.0, 2.0], device='cuda')",
        "torch.cuda.FloatTensor([1.0, 2.0])",
        "net.load_state_dict({k: v.cpu() for k, v in net.state_dict().items()})",
        "torch.load(saved, map_location='cuda')",
        "copy.deepcopy(net).cpu()",
        "pickle.dumps(y)",
        "torch.save(net, buffer)",
        "list(WeightedRandomSampler(y.exp(), 4))",
        "next(iter(DataLoader(TensorDataset(host), 4, pin_memory=True)))[0].to('cuda')",
        "nn.Linear(8, 8).cuda()",
        "with torch.device('cuda'): torch.tensor([1.0])",
    ),
    "sequences": (
        "nn.utils.rnn.pack_padded_sequence(seq, [3, 6, 2, 5], batch_first=True, enforce_sorted=False)",
        "F.ctc_loss(seq.transpose(0, 1).log_softmax(-1), ids[:, :2].clamp(1, 7), (6, 6, 6, 6), (2, 2, 2, 2))",
        "with torch.no_grad(): encoder.eval()(seq, src_key_padding_mask=padding)",
    ),
    "sparse": (
        "torch.sparse_coo_tensor(torch.stack([target, target]), y)",
        "torch.sparse.mm(torch.sparse_coo_tensor(torch.stack([target, target]), y, (5, 16)), x)",
        "F.embedding(ids, table.weight, padding_idx=3, sparse=True).sum().backward()",
        "coo.coalesce()",
        "coo @ dense",
        "coo + coo",
        "torch.sparse.mm(coalesced, coalesced)",
        "torch.bmm(matrices, dense.expand(2, 5, 3))",
        "torch.hspmm(coalesced, dense)",
        "torch.sparse.softmax(coalesced, 1)",
        "torch.sparse.log_softmax(trainable, 1).to_dense().sum().backward()",
        "torch.sparse.sum(trainable, 0).to_dense().sum().backward()",
        "coalesced.index_select(0, target[:2])",
        "torch.ops.aten._padded_dense_to_jagged_forward(seq, [torch.tensor([0, 3, 6, 8, 9]).pin_memory().to('cuda', non_blocking=True)])",
    ),
    "distributions": (
        "distributions.Categorical(logits=x, validate_args=True)",
        "distributions.MultivariateNormal(y[:3], torch.eye(3, device='cuda'), validate_args=False)",
    ),
    "linear algebra": (
        "torch.linalg.cond(x)",
        "torch.linalg.norm(square, ord=2)",
        "torch.linalg.matrix_power(square, -1)",
        "torch.svd_lowrank(x, 2)",
        "torch.corrcoef(x)",
    ),
    "gradients": (
        "torch.trace(leaf[:8]).backward()",
        "torch.zeros_like(x).masked_scatter(keep, leaf).sum().backward()",
        "ReadsInBackward.apply(leaf).sum().backward()",
        "checkpoint.checkpoint(lambda t: t * t.sum().item(), leaf, use_reentrant=False).sum().backward()",
        "with torch.autograd.detect_anomaly(): leaf.square().sum().backward()",
        "nn.utils.clip_grad_norm_(net.parameters(), 1.0).item()",
    ),
    "state of a module or of a scaler": (
        "cumulative(x)",
        "scaler.state_dict()",
        "(averaged.update_parameters(net), averaged.update_parameters(net))",
        "observer.calculate_qparams()",
        "moving(x)",
    ),
    "other": (
        "torch.accelerator.synchronize()",
        "(start.record(), end.record(), end.synchronize(), start.elapsed_time(end))",
        "with torch.inference_mode(): net(x).argmax(-1).tolist()",
        "with torch.inference_mode(): bool((net(x) > 0).all())",
    ),
}
"""The host waits."""


RUNS_ON: Final[dict[str, tuple[str, ...]]] = {
    "python looks at no value": (
        "sum(x)",
        "for part in x: part.sum()",
        "first, *rest = y",
        "list(reversed(y))",
        "total in [total]",
        "(total > 0) & (total < 1)",
        "bool(x.numel()) and x.is_contiguous() and x.requires_grad",
        "f'{x.shape} {x.dtype} {x.device}' + repr(net)",
        "abs(total) + pow(total, 2)",
        "sum(p.numel() for p in net.parameters())",
        "any(p.grad is None for p in net.parameters())",
        "{total: 1, y: 2}[y]",
    ),
    "metrics": (
        "(net(x).argmax(1) == target).sum() / len(target)",
        "(net(x).topk(3).indices == target[:, None]).any(1).float().mean()",
        "torch.zeros(5, 5, device='cuda').index_put_((target, target), torch.ones(16, device='cuda'), accumulate=True)",
        "torch.stack([p.grad.norm() for p in net.parameters()]).norm()",
        "torch._foreach_norm([p.grad for p in net.parameters()])",
        "torch.minimum(total, y.mean())",
        "torch.trapezoid(y.sort().values, y)",
    ),
    "numbers": (
        "torch.lerp(x, x + 1, total)",
        "x.clamp(max=total)",
        "x ** total",
        "torch.normal(y, 1.0)",
        "torch.bernoulli(x.sigmoid())",
        "torch.quantile(x, shares)",
        "y.kthvalue(3)",
        "torch.equal(x, x)",
        "torch.equal(x, x[:4])",
        "torch.tensor(y)",
        "torch.as_tensor(y, device='cuda')",
        "x.type(torch.float16).to(x.device).cuda()",
        "torch.randn(4, generator=torch.Generator('cuda').manual_seed(3), device='cuda')",
        "torch.einsum('bi,bj->ij', x, x)",
        "torch.nan_to_num(x) / x.norm()",
    ),
    "indexing": (
        "x[~keep] = 0",
        "x[torch.arange(16, device='cuda'), target]",
        "y[3] = total",
        "y[2:5] = total",
        "y[:3] = torch.tensor(1.0)",
        "x[0, 0] += 1",
        "torch.where(keep, x, 0.0)",
        "x.masked_fill(keep, torch.tensor(0.0))",
        "x.scatter_(1, target[:, None], 1.0)",
        "torch.take_along_dim(x, x.argsort(1), 1)",
        "x.index_add_(0, target, x.clone())",
        "x.fill_diagonal_(0.0)",
        "torch.isin(target, torch.arange(3, device='cuda'))",
        "torch.cartesian_prod(target[:2], target[:3])",
    ),
    "data moves": (
        "next(iter(DataLoader(TensorDataset(host), 4, pin_memory=True)))[0].to('cuda', non_blocking=True)",
        "list(DataLoader(TensorDataset(x, target), 4, shuffle=True))",
        "pinned.t().to('cuda', non_blocking=True)",
        "pinned.to('cuda', torch.float16, non_blocking=True)",
        "copy.deepcopy(net).half()",
        "torch.save({'step': host}, buffer)",
        "nn.Linear(8, 8, device='cuda')",
        "image.to(memory_format=torch.channels_last)",
        "with torch.device('cuda'): nn.LayerNorm(8)(torch.zeros(3, 8))",
    ),
    "sequences": (
        "nn.utils.rnn.pack_padded_sequence(seq, [6, 5, 3, 2], batch_first=True)",
        "lstm(seq)[0].sum().backward()",
        "gru(seq)[0].sum().backward()",
        "attention(seq, seq, seq, key_padding_mask=padding)[0].sum().backward()",
        "encoder(seq, src_key_padding_mask=padding).sum().backward()",
        "F.embedding_bag(ids, table.weight).sum().backward()",
        "nn.Transformer.generate_square_subsequent_mask(4, device='cuda')",
    ),
    "sparse": (
        "torch.sparse_coo_tensor(torch.stack([target, target]), y, (5, 5))",
        "coalesced @ dense",
        "coo.to_dense()",
        "coalesced.to_dense()",
        "torch.zeros(5, 5, device='cuda').add_(coo)",
        "torch.zeros(5, 5, device='cuda').add_(coalesced)",
        "coalesced.coalesce()",
        "torch.sparse.sum(trainable).backward()",
        "F.embedding(ids, table.weight, sparse=True).sum().backward()",
    ),
    "distributions": (
        "distributions.Categorical(logits=x, validate_args=False).sample()",
        "distributions.kl_divergence(*[distributions.Normal(y, y.exp(), validate_args=False)] * 2)",
        "distributions.Gamma(y.exp(), y.exp(), validate_args=False).rsample()",
        "F.gumbel_softmax(x, hard=True)",
    ),
    "linear algebra": (
        "torch.linalg.qr(x)",
        "torch.linalg.slogdet(square)",
        "torch.linalg.solve_triangular(square.triu(), x.T, upper=True)",
        "torch.cdist(x, x)",
        "torch.fft.rfft(x)",
    ),
    "losses and gradients": (
        "F.binary_cross_entropy(leaf.sigmoid(), keep.float()).backward()",
        "F.binary_cross_entropy_with_logits(leaf, keep.float(), pos_weight=y[:8].exp()).backward()",
        "leaf.max().backward()",
        "leaf.max(dim=1).values.sum().backward()",
        "leaf.masked_scatter(keep, x).sum().backward()",
        "torch.where(keep, leaf, 0.0).sum().backward()",
        "torch.autograd.functional.jacobian(torch.square, y)",
        "torch.func.functional_call(net, dict(net.named_parameters()), (x,))",
        "torch.func.vmap(torch.func.grad(lambda a: (a * a).sum()))(x)",
        "checkpoint.checkpoint_sequential(net, 2, leaf, use_reentrant=False).sum().backward()",
        "F.interpolate(image, scale_factor=2.0, mode='bilinear')",
        "with torch.autocast('cuda', dtype=torch.float16): F.cross_entropy(net(x), target).backward()",
    ),
    "optimizers and state": (
        "(scaler.step(fused), scaler.update())",
        "scaler.update(new_scale=2.0)",
        "torch.optim.Adam(net.parameters(), capturable=True).step()",
        "torch.optim.Adam(net.parameters(), lr=torch.tensor(1e-3)).step()",
        "adamw.load_state_dict(adamw.state_dict())",
        "nn.utils.clip_grad_value_(net.parameters(), 0.5)",
        "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()), net.parameters())",
        "averaged.update_parameters(net)",
        "torch._foreach_lerp_(list(shadow.parameters()), list(net.parameters()), 0.1)",
        "torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, 10).step()",
        "observer(x)",
        "nn.init.xavier_normal_(net[0].weight)",
        "nn.utils.parametrizations.spectral_norm(net[0])(x)",
    ),
    "streams and queries": (
        "with torch.cuda.stream(stream): x * 2",
        "x.record_stream(stream)",
        "(torch.cuda.reset_peak_memory_stats(), torch.cuda.max_memory_allocated())",
        "torch.cuda.set_rng_state(torch.cuda.get_rng_state())",
        "with torch.profiler.record_function('part'): net(x)",
    ),
}
"""The host does not wait."""


MAY_WAIT: Final[dict[str, tuple[str, ...]]] = {
    "data moves": (
        "pinned[:, :4].to('cuda', non_blocking=True)",
        "next(iter(DataLoader(TensorDataset(host), 4)))[0].to('cuda', non_blocking=True)",
        "x.copy_(host, non_blocking=True)",
    ),
}
"""Sizes, a library or the allocator decide."""
