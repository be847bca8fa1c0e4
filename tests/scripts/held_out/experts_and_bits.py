"""Mixtures of experts, quantisation, codebooks, pruning."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune


device = "cuda"


def experts_in_a_loop():
    x = torch.randn(16, 8, device=device)
    gate = nn.Linear(8, 4).to(device)
    experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)).to(device)
    weights, chosen = torch.topk(gate(x).softmax(-1), 2)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for i, expert in enumerate(experts):
        token, nth = torch.where(chosen == i)
        out[token] += weights[token, nth, None] * expert(x[token])
    out.sum().backward()


def experts_by_mask():
    x = torch.randn(16, 8, device=device)
    experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)).to(device)
    probs = torch.randn(16, 3, device=device).softmax(-1)
    mask = F.one_hot(probs.topk(2).indices, num_classes=3).permute(2, 1, 0)
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    out = torch.zeros_like(x)
    for e in range(3):
        idx, top_x = torch.where(mask[e])
        current = experts[e](x[None, top_x].reshape(-1, 8)) * probs[top_x, e, None]
        out.index_add_(0, top_x, current.to(x.dtype))
    return out, hit


def experts_with_capacity():
    x = torch.randn(32, 8, device=device)
    logits = torch.randn(32, 4, device=device, requires_grad=True)
    probs = logits.softmax(-1)
    capacity = int(1.25 * 32 / 4)
    gate, index = probs.max(-1)
    one_hot = F.one_hot(index, 4).float()
    position = ((one_hot.cumsum(0) - 1) * one_hot).sum(-1).long()
    keep = position < capacity
    dispatch = torch.zeros(4, capacity, 8, device=device)
    dispatch[index, position.clamp(max=capacity - 1)] = x * keep[:, None]
    aux = (one_hot.mean(0) * probs.mean(0)).sum() * 4
    (aux + gate.mean()).backward()
    return dispatch, keep.float().mean().item()


def experts_by_sorting():
    x = torch.randn(16, 8, device=device)
    w = torch.randn(4, 8, 8, device=device)
    index = torch.randint(4, (16,), device=device)
    order = index.argsort()
    counts = torch.bincount(index, minlength=4).tolist()
    outs = [part @ w[i] for i, part in enumerate(x[order].split(counts)) if len(part)]
    out = torch.empty_like(x)
    out[order] = torch.cat(outs)
    return out


def experts_by_batched_product():
    x = torch.randn(16, 8, device=device)
    w = torch.randn(4, 8, 8, device=device)
    index = torch.randint(4, (16,), device=device)
    out = torch.einsum("td,tdo->to", x, w[index])
    load = torch.zeros(4, device=device).scatter_add_(
        0, index, torch.ones(16, device=device)
    )
    return out, load / load.sum()


def balance_without_a_loss():
    bias = torch.zeros(4, device=device)
    index = torch.randint(4, (64, 2), device=device)
    tokens = torch.histc(index.float(), bins=4, min=0, max=3)
    err = tokens.mean() - tokens
    bias += 0.001 * torch.sign(err)
    busiest = tokens.argmax()
    print(f"busiest expert {busiest} of {tokens.max():.0f} tokens")


def absmax_int8():
    w = torch.randn(16, 16, device=device)
    scale = w.abs().amax(dim=1, keepdim=True) / 127
    q = torch.clamp((w / scale).round(), -128, 127).to(torch.int8)
    back = q.float() * scale
    return (back - w).abs().max().item()


def affine_with_python_numbers():
    x = torch.randn(32, device=device)
    lo, hi = x.min().item(), x.max().item()
    scale = (hi - lo) / 255 or 1.0
    zero = int(round(-lo / scale))
    return torch.fake_quantize_per_tensor_affine(
        x, scale, max(0, min(255, zero)), 0, 255
    )


def affine_with_tensors():
    x = torch.randn(8, 4, device=device, requires_grad=True)
    scale = torch.tensor(0.1, device=device)
    zero = torch.tensor(0, dtype=torch.int32, device=device)
    y = torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)
    scales = torch.full((4,), 0.1, device=device)
    zeros = torch.zeros(4, dtype=torch.int32, device=device)
    z = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127)
    (y + z).sum().backward()


def observer():
    lo = torch.tensor(float("inf"), device=device)
    hi = torch.tensor(float("-inf"), device=device)
    for _ in range(2):
        x = torch.randn(16, device=device)
        a, b = torch.aminmax(x)
        lo.copy_(torch.min(lo, a))
        hi = torch.max(hi, b)
    scale = ((hi - lo) / 255).clamp(min=torch.finfo(torch.float32).eps)
    if scale == 0:
        raise ValueError
    return scale


def quantize_with_straight_through():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bits):
            n = 2**bits - 1
            return torch.round(x * n) / n

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    x = torch.rand(8, device=device, requires_grad=True)
    Round.apply(x, 4).sum().backward()
    return x.grad


def vector_quantizer():
    codebook = nn.Embedding(32, 8).to(device)
    z = torch.randn(2, 8, 4, 4, device=device, requires_grad=True)
    flat = z.permute(0, 2, 3, 1).reshape(-1, 8)
    d = (
        flat.pow(2).sum(1, keepdim=True)
        - 2 * flat @ codebook.weight.t()
        + codebook.weight.pow(2).sum(1)
    )
    idx = d.argmin(1)
    q = codebook(idx).view(2, 4, 4, 8).permute(0, 3, 1, 2)
    loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
    loss.backward()
    avg = F.one_hot(idx, 32).float().mean(0)
    perplexity = torch.exp(-(avg * torch.log(avg + 1e-10)).sum())
    return perplexity.item(), idx.unique().numel()


def codebook_by_means():
    x = torch.randn(64, 4, device=device)
    centers = x[torch.randperm(64, device=device)[:8]].clone()
    for _ in range(2):
        near = torch.cdist(x, centers).argmin(1)
        sums = torch.zeros_like(centers).index_add_(0, near, x)
        counts = torch.bincount(near, minlength=8).unsqueeze(1)
        fresh = sums / counts.clamp(min=1)
        dead = counts.squeeze(1) == 0
        centers = torch.where(dead[:, None], centers, fresh)
        shift = (centers - fresh).norm()
    return centers, float(shift)


def prune_by_magnitude():
    layer = nn.Linear(16, 16).to(device)
    w = layer.weight.data.abs().flatten()
    k = int(0.5 * w.numel())
    threshold = w.kthvalue(k).values
    mask = (layer.weight.data.abs() > threshold).float()
    layer.weight.data.mul_(mask)
    nn.utils.prune.l1_unstructured(layer, "bias", amount=4)
    return 1 - mask.mean().item()


def two_of_four():
    w = torch.randn(8, 16, device=device)
    groups = w.view(-1, 4)
    idx = groups.abs().argsort(1)[:, :2]
    mask = torch.ones_like(groups, dtype=torch.bool).scatter_(1, idx, False)
    return (groups * mask).view_as(w), mask.sum().item() / mask.numel()


def pack_four_bits():
    q = torch.randint(0, 16, (8, 16), dtype=torch.uint8, device=device)
    packed = q[:, ::2] | (q[:, 1::2] << 4)
    low, high = packed & 0xF, packed >> 4
    table = torch.tensor(
        [
            -1.0,
            -0.7,
            -0.5,
            -0.4,
            -0.3,
            -0.2,
            -0.1,
            0.0,
            0.1,
            0.2,
            0.3,
            0.4,
            0.5,
            0.6,
            0.8,
            1.0,
        ]
    ).to(device)
    return table[torch.stack([low, high], -1).flatten(1).long()]


def low_rank_adapter():
    base = nn.Linear(16, 16).to(device).requires_grad_(False)
    a = nn.Parameter(torch.empty(4, 16, device=device))
    b = nn.Parameter(torch.zeros(16, 4, device=device))
    nn.init.kaiming_uniform_(a, a=5**0.5)
    x = torch.randn(8, 16, device=device)
    y = base(x) + (F.dropout(x, 0.1) @ a.T @ b.T) * 2.0
    y.sum().backward()
    base.weight.data += (b @ a) * 2.0
    u, s, v = torch.svd_lowrank(base.weight, q=4)
    return s


def smooth_the_outliers():
    acts = [torch.randn(10, 8, device=device) for _ in range(3)]
    peak = torch.stack([a.abs().amax(0) for a in acts]).amax(0)
    w = torch.randn(8, 8, device=device)
    s = (peak.pow(0.5) / w.abs().amax(0).clamp(min=1e-5).pow(0.5)).clamp(min=1e-5)
    w.mul_(s[None])
    hist = torch.histc(torch.cat(acts).abs(), 16)
    return hist.argmax().item()
