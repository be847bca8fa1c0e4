"""Idioms of training code on CUDA, written before they were run.

Each snippet runs as a statement in a fresh ``SETTING``; the expectations come from CUDA's
semantics and torch 2.13's sources.
"""

from __future__ import annotations

from typing import Final


SETTING: Final = """
import copy
import functools
import io
import math
import random
import warnings

import torch
import torch.nn.functional as F
from torch import distributions
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, TensorDataset, default_collate

torch.manual_seed(0)
x = torch.randn(16, 8, device="cuda")
y = torch.randn(16, device="cuda")
target = torch.randint(0, 5, (16,), device="cuda")
seq = torch.randn(4, 6, 8, device="cuda")
image = torch.randn(2, 3, 8, 8, device="cuda")
keep = x > 0
picked = target > 2
total = y.square().mean()
rate = torch.full((), 0.1, device="cuda")
square = x.T @ x + 8 * torch.eye(8, device="cuda")
leaf = x.clone().requires_grad_()
causal = torch.full((6, 6), float("-inf"), device="cuda").triu(1)
lengths = torch.full((4,), 3, device="cuda")
host = torch.randn(16, 8)
pinned = torch.randn(16, 8).pin_memory()
host_lengths = torch.tensor([3, 6, 2, 5])

net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5)).cuda()
block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()
encoder = nn.TransformerEncoder(block, 1).cuda()
adaptive = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]).cuda()
bag = nn.EmbeddingBag(20, 8, mode="sum", device="cuda")
offsets = torch.arange(0, 16, 4, device="cuda")
cell = nn.LSTMCell(8, 8).cuda()
conv = nn.Conv1d(4, 4, 3, device="cuda")
quantised = torch.ao.quantization.FakeQuantize().cuda()

F.cross_entropy(net(x), target).backward()
adamw = torch.optim.AdamW(net.parameters())
adamw.step()
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
ema = torch.optim.swa_utils.AveragedModel(
    net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
)
ema.update_parameters(net)
scaler = torch.amp.GradScaler("cuda")
scaled = scaler.scale(total)
critic = lambda t: net(t).sum(1)
seen = []
meter = torch.zeros((), device="cuda")
table = torch.zeros(5, 5, device="cuda")
cache = torch.zeros(4, 12, 8, device="cuda")
stream = torch.cuda.Stream()
event = torch.cuda.Event()
buffer = io.BytesIO()
"""


WAITS: Final[dict[str, tuple[str, ...]]] = {
    "a tensor where python wants a number": (
        "torch.randint(0, target.max() + 1, (3,), device='cuda')",
        "torch.ones(target[0] + 1, 3, device='cuda')",
        "x.view(target.max() * 0 + 16, -1)",
        "torch.eye(target.max() + 1)",
        "F.pad(x, (int(target[0]), 0))",
        "F.dropout(x, p=rate)",
        "F.leaky_relu(x, rate)",
        "F.smooth_l1_loss(x, x + 1, beta=rate)",
        "F.cross_entropy(net(x), target, label_smoothing=rate)",
        "F.layer_norm(x, (8,), eps=rate)",
        "torch.full_like(x, total)",
        "x.new_full((2,), total)",
        "torch.arange(0, total * 4, device='cuda')",
        "slice(target[0], target[1]).indices(10)",
        "nn.utils.clip_grad_norm_(net.parameters(), total)",
        "torch.is_nonzero(total)",
        "x.split((target[:2] * 0 + 8).tolist())",
        "for group in sgd.param_groups: group['lr'] = rate; sgd.step()",
    ),
    "python compares": (
        "[y, total].index(total + 1) if False else [total + 1, total].remove(total.clone())",
        "sorted([(1, total), (1, total + 1)])",
        "max([total, y.mean()], key=lambda t: t.detach().cpu())",
        "torch.zeros(4, device='cuda')[0] if total > 10 else 1",
        "1 if (target == 4).all() else 0",
        "warnings.warn(f'loss is {total}')",
        "float('inf') if total != total else 1",
        "not keep.any()",
    ),
    "indexing": (
        "[x[i] for i in target[:2]]",
        "x[None, keep[:, 0].nonzero()[:, 0]]",
        "y[keep[:, 0]] += 1",
        "y[target] = 1",
        "x[0][1] = 5.0",
        "x[:, :1] = host[:, :1]",
        "x[torch.randperm(16)]",
        "(x @ x.T)[~torch.eye(16, dtype=torch.bool, device='cuda')].view(16, -1)",
        "(net(x).argmax(1) == target).nonzero().numel()",
        "torch.segment_reduce(seq[:, 0], 'sum', lengths=torch.full((2,), 2, device='cuda'))",
        "torch.repeat_interleave(target)",
    ),
    "moves": (
        "x.to(host)",
        "host.type_as(x)",
        "x.cpu().numpy().tobytes()",
        "torch.save(adamw.state_dict(), buffer)",
        "torch.stack([torch.tensor(1.0), torch.tensor(2.0)]).cuda()",
        "torch.signal.windows.hann(8, device='cuda')",
        "nn.init.dirac_(conv.weight)",
        "prune.ln_structured(net[0], 'weight', 0.5, 2, 0)",
        "for (batch,) in DataLoader(TensorDataset(host), 8): batch.cuda()",
    ),
    "modules": (
        "encoder(seq, mask=causal)",
        "adaptive(x, target + 3)",
        "rnn.pad_packed_sequence(rnn.pack_padded_sequence(seq, host_lengths, batch_first=True, enforce_sorted=False))",
        "rnn.unpad_sequence(seq, lengths, batch_first=True)",
        "torch.optim.swa_utils.update_bn([x], net)",
        "ema.update_parameters(net)",
        "net[1].num_batches_tracked.item()",
        "quantised(x)",
        "torch.ao.quantization.HistogramObserver().cuda()(x)",
        "(net.register_forward_hook(lambda m, i, o: seen.append(o.mean().item())), net(x))",
        "scaler.load_state_dict(scaler.state_dict())",
    ),
    "distributions and linear algebra": (
        "distributions.Normal(0.0, y.exp(), validate_args=False)",
        "distributions.Categorical(logits=x, validate_args=False).sample()[0].item()",
        "torch.pinverse(x)",
        "torch.linalg.lu_factor(square)",
        "torch.linalg.svdvals(x)",
        "torch.linalg.ldl_factor(square)",
        "torch.autograd.gradcheck(torch.square, leaf[:2, :2].detach().double().requires_grad_())",
    ),
    "loops": (
        "while total > 0.1: total = total / 2",
        "for i in range(2): seen.append(F.cross_entropy(net(x), target).item())",
        "action = random.random() if False else net(x[:2]).argmax(1)[0].item()",
        "meter += total; f'{meter / 2:.4f}'",
        "with torch.no_grad(): acc = (net(x).argmax(1) == target).float().mean().cpu()",
    ),
}
"""The host waits."""


RUNS_ON: Final[dict[str, tuple[str, ...]]] = {
    "numbers on the device": (
        "x.div(rate, rounding_mode='floor').pow(rate).sub_(rate)",
        "F.normalize(x, eps=rate)",
        "torch.where(x > rate, x, rate)",
        "x.bernoulli_(total.sigmoid())",
        "torch.multinomial(x.softmax(1), 2)",
        "functools.reduce(torch.maximum, [total, y.mean()])",
        "meter += total * 16",
        "math.prod(x.shape) + total.ndim + total.nelement()",
        "set([total, total]) | {y}",
        "sorted([(1, total), (0, y)])",
        "all(t.is_cuda and t.dtype.is_floating_point for t in (x, y))",
        "torch.is_same_size(x, x) and not x.is_pinned()",
        "torch.isclose(x, x)",
    ),
    "indexing": (
        "x[picked, 1] = 0.0",
        "y[target] += 1",
        "y.index_fill_(0, target, 1.0)",
        "x[...] = 0",
        "y[-1] = y[0]",
        "y[0] += 1.0",
        "table[target, target] += 1",
        "cache[:, 3:9] = seq",
        "cache.index_copy_(1, target[:1], seq[:, :1])",
        "x[torch.randperm(16, device='cuda')]",
        "y[y.argsort(descending=True)[:5]]",
        "x.put_(target, y)",
        "x.index_reduce_(0, target, x.clone(), 'mean')",
        "torch.zeros(5, 8, device='cuda').scatter_reduce(0, target[:, None].expand(-1, 8), x, 'amax')",
        "torch.linspace(1, 0, 5, device='cuda').cumprod(0)[target].view(-1, 1) * x",
        "(x @ x.T).masked_fill_(torch.eye(16, dtype=torch.bool, device='cuda'), -9e15)",
    ),
    "moves": (
        "host.to(x.dtype)",
        "x.to('cuda:0', non_blocking=True)",
        "pinned.copy_(x, non_blocking=True)",
        "torch.empty(16, pin_memory=True).copy_(y, non_blocking=True)",
        "default_collate([x[0], x[1]])",
        "copy.deepcopy(adamw.state_dict())",
        "torch.save(sgd.state_dict(), buffer)",
        "torch.hann_window(8, device='cuda')",
        "for (batch,) in DataLoader(TensorDataset(host), 8, pin_memory=True): batch.cuda(non_blocking=True)",
        "x.untyped_storage().nbytes() + x.data_ptr()",
    ),
    "modules": (
        "encoder(seq, mask=causal, is_causal=True)",
        "block.eval()(seq)",
        "bag(target, offsets).sum().backward()",
        "cell(x)[0].sum().backward()",
        "nn.init.orthogonal_(net[0].weight)",
        "nn.init.eye_(net[0].weight)",
        "net[1].reset_running_stats()",
        "nn.GroupNorm(2, 8, device='cuda')(x)",
        "(net.register_forward_hook(lambda m, i, o: seen.append(o.mean())), net(x))",
        "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)",
        "nn.utils.parametrizations.weight_norm(net[0])(x)",
        "with torch.no_grad(): net.eval()(x).softmax(1).topk(2)",
    ),
    "losses": (
        "F.triplet_margin_loss(x, x + 1, x - 1)",
        "F.cosine_embedding_loss(x, x + 1, y.sign())",
        "F.multi_margin_loss(net(x), target)",
        "F.poisson_nll_loss(x, x.exp())",
        "(((torch.autograd.grad(critic(leaf).sum(), leaf, create_graph=True)[0]).norm(2, dim=1) - 1) ** 2).mean().backward()",
        "torch.full_like(x[:, :5], 0.1).scatter_(1, target[:, None], 0.9)",
        "((1 - x.softmax(1).gather(1, target[:, None])) ** 2).mean()",
        "(leaf * picked[:, None]).sum() / picked.sum().clamp(min=1)",
        "F.kl_div(x.log_softmax(1), x.softmax(1), reduction='batchmean')",
        "torch.func.jacrev(torch.square)(y)",
    ),
    "distributions and linear algebra": (
        "distributions.Normal(torch.zeros_like(y), y.exp(), validate_args=False).log_prob(y)",
        "distributions.Beta(y.exp(), y.exp(), validate_args=False).rsample()",
        "distributions.kl_divergence(*[distributions.Categorical(logits=x, validate_args=False)] * 2)",
        "torch.linalg.lu(square)",
        "torch.linalg.solve_ex(square, square)",
        "torch.logdet(square)",
        "torch.fft.fft2(image).abs()",
        "torch.bucketize(y, torch.linspace(-1, 1, 5, device='cuda'))",
        "torch.gradient(y)",
    ),
    "loops and streams": (
        "for i in range(2): (F.cross_entropy(net(x), target) / 2).backward()",
        "returns = [r := (r if i else total) * 0.9 + v for i, v in enumerate(y) if i or (r := total) is not None]",
        "event.record(); stream.wait_event(event)",
        "with torch.cuda.device(0): torch.cuda.current_stream().wait_stream(stream)",
        "logits = x.clone(); logits[logits < logits.topk(3).values[:, -1:]] = -float('inf'); logits.softmax(1)",
        "torch.backends.cudnn.benchmark = True; net(x); torch.backends.cudnn.benchmark = False",
        "random.random() * x + (1 - random.random()) * x[torch.randperm(16, device='cuda')]",
    ),
}
"""The host does not wait."""


MAY_WAIT: Final[dict[str, tuple[str, ...]]] = {
    "moves": (
        "for (batch,) in DataLoader(TensorDataset(host), 8): batch.cuda(non_blocking=True)",
    ),
}
"""Sizes, a library or the allocator decide."""
