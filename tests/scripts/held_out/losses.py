"""Losses as training code computes them."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


device = torch.device("cuda")


def focal_loss():
    logits = torch.randn(32, 10, device=device, requires_grad=True)
    target = torch.randint(10, (32,), device=device)
    ce = F.cross_entropy(logits, target, reduction="none")
    pt = torch.exp(-ce)
    alpha = torch.tensor([0.25, 0.75] * 5, device=device)
    loss = (alpha[target] * (1 - pt) ** 2 * ce).mean()
    loss.backward()
    return loss.item()


def soft_dice_loss():
    prob = torch.sigmoid(torch.randn(4, 3, 16, 16, device=device, requires_grad=True))
    mask = torch.randint(0, 2, (4, 3, 16, 16), device=device).float()
    dims = (0, 2, 3)
    intersection = torch.sum(prob * mask, dims)
    cardinality = torch.sum(prob + mask, dims)
    dice = 2.0 * intersection / (cardinality + 1e-7)
    present = (mask.sum(dims) > 0).to(dice.dtype)
    loss = ((1 - dice) * present).mean()
    loss.backward()


def masked_language_model():
    hidden = torch.randn(2, 12, 32, device=device, requires_grad=True)
    labels = torch.full((2, 12), -100, device=device)
    labels[:, ::3] = 7
    decoder = nn.Linear(32, 50).to(device)
    active = labels.view(-1) != -100
    logits = decoder(hidden.view(-1, 32)[active])
    loss = F.cross_entropy(logits, labels.view(-1)[active])
    loss.backward()


def info_nce():
    a = F.normalize(torch.randn(16, 64, device=device, requires_grad=True), dim=-1)
    b = F.normalize(torch.randn(16, 64, device=device), dim=-1)
    logit_scale = nn.Parameter(torch.ones([], device=device) * math.log(1 / 0.07))
    logits = logit_scale.exp().clamp(max=100) * a @ b.t()
    labels = torch.arange(len(a), device=device)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    loss.backward()
    with torch.no_grad():
        logit_scale.clamp_(0, math.log(100))


def supervised_contrastive():
    features = F.normalize(
        torch.randn(16, 32, device=device, requires_grad=True), dim=1
    )
    labels = torch.randint(4, (16,), device=device).view(-1, 1)
    same = torch.eq(labels, labels.T).float()
    eye = torch.scatter(
        torch.ones_like(same), 1, torch.arange(16).view(-1, 1).to(device), 0
    )
    same = same * eye
    sim = features @ features.T / 0.1
    sim = sim - sim.max(dim=1, keepdim=True)[0].detach()
    log_prob = sim - torch.log((torch.exp(sim) * eye).sum(1, keepdim=True))
    positives = same.sum(1)
    positives = torch.where(positives < 1e-6, 1, positives)
    (-(same * log_prob).sum(1) / positives).mean().backward()


def batch_hard_triplet():
    emb = torch.randn(12, 8, device=device, requires_grad=True)
    ids = torch.arange(12, device=device) // 3
    dist = torch.cdist(emb, emb)
    same = ids[None] == ids[:, None]
    hardest_positive = (dist * same).amax(1)
    hardest_negative = dist.masked_fill(same, float("inf")).amin(1)
    loss = F.relu(hardest_positive - hardest_negative + 0.3)
    hard = loss > 0
    if hard.any():
        loss = loss[hard].mean()
    else:
        loss = loss.sum() * 0
    loss.backward()


def ctc_with_lengths_on_the_cpu():
    log_probs = torch.randn(20, 4, 11, device=device).log_softmax(2).requires_grad_()
    targets = torch.randint(1, 11, (4, 8))
    input_lengths = torch.full((4,), 20, dtype=torch.long)
    target_lengths = torch.tensor([8, 6, 7, 5])
    criterion = nn.CTCLoss(zero_infinity=True)
    loss = criterion(log_probs, targets.to(device), input_lengths, target_lengths)
    loss.backward()


def distillation():
    student = torch.randn(8, 100, device=device, requires_grad=True)
    teacher = torch.randn(8, 100, device=device)
    T = 4.0
    soft = F.kl_div(
        F.log_softmax(student / T, dim=1),
        F.log_softmax(teacher / T, dim=1),
        reduction="batchmean",
        log_target=True,
    ) * (T * T)
    hard = F.cross_entropy(student, teacher.argmax(1), label_smoothing=0.1)
    loss = 0.7 * soft + 0.3 * hard
    loss.backward()
    print(f"soft {soft:.3f} hard {hard.item():.3f}")


def online_hard_example_mining():
    pred = torch.randn(2, 5, 8, 8, device=device, requires_grad=True)
    target = torch.randint(0, 5, (2, 8, 8), device=device)
    target[:, 0] = 255
    loss = F.cross_entropy(pred, target, ignore_index=255, reduction="none").view(-1)
    n_valid = int((target != 255).sum())
    k = max(1, n_valid // 16)
    hard, _ = torch.topk(loss, k)
    hard.mean().backward()


def arcface():
    weight = nn.Parameter(torch.empty(20, 16, device=device))
    nn.init.xavier_uniform_(weight)
    x = torch.randn(6, 16, device=device)
    label = torch.randint(20, (6,), device=device)
    cosine = F.linear(F.normalize(x), F.normalize(weight))
    sine = torch.sqrt((1.0 - cosine**2).clamp(0, 1))
    phi = cosine * math.cos(0.5) - sine * math.sin(0.5)
    phi = torch.where(cosine > math.cos(math.pi - 0.5), phi, cosine - 0.24)
    one_hot = torch.zeros_like(cosine).scatter_(1, label.view(-1, 1).long(), 1)
    out = 30.0 * (one_hot * phi + (1.0 - one_hot) * cosine)
    F.cross_entropy(out, label).backward()


def binary_with_class_balance():
    target = (torch.rand(64, 1, device=device) > 0.9).float()
    n_pos = target.sum()
    pos_weight = (target.numel() - n_pos) / n_pos.clamp(min=1)
    criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    logits = torch.randn(64, 1, device=device, requires_grad=True)
    criterion(logits, target).backward()
    weights = torch.tensor([0.1, 0.9]).to(device)
    F.cross_entropy(
        torch.cat([-logits, logits], 1), target.squeeze(1).long(), weight=weights
    ).backward()


def gradient_penalty():
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).cuda()
    real = torch.randn(10, 8, device="cuda")
    fake = torch.randn(10, 8, device="cuda")
    eps = torch.rand(real.size(0), 1).cuda()
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mixed)
    (grads,) = torch.autograd.grad(
        score, mixed, grad_outputs=torch.ones_like(score), create_graph=True
    )
    penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()


def masked_huber_by_mean_of_valid():
    pred = torch.randn(4, 10, device=device, requires_grad=True)
    target = torch.randn(4, 10, device=device)
    lengths = torch.tensor([10, 7, 3, 5], device=device)
    mask = torch.arange(10, device=device)[None, :] < lengths[:, None]
    loss = F.smooth_l1_loss(pred, target, reduction="none", beta=0.5)
    loss = (loss * mask).sum() / mask.sum()
    if torch.isfinite(loss):
        loss.backward()
    mae = (pred - target).abs().masked_select(mask).mean()
    return {"loss": float(loss.detach()), "mae": mae.cpu()}


def uncertainty_weighted_tasks():
    log_vars = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(3)]).to(
        device
    )
    losses = torch.rand(3, device=device).unbind()
    total = 0
    for loss, log_var in zip(losses, log_vars):
        total = total + torch.exp(-log_var) * loss + log_var
    total.backward()
    return [p.grad.item() for p in log_vars]


def chunked_cross_entropy():
    hidden = torch.randn(64, 16, device=device, requires_grad=True)
    head = nn.Linear(16, 128, bias=False, device=device)
    labels = torch.randint(128, (64,), device=device)
    labels[5:9] = -100
    n_tokens = (labels != -100).sum()
    total = torch.zeros((), device=device)
    for h, y in zip(hidden.chunk(4), labels.chunk(4)):
        total += F.cross_entropy(head(h).float(), y, ignore_index=-100, reduction="sum")
    loss = total / n_tokens
    loss.backward()
    return loss.detach()


def wasserstein_by_sorting():
    x = torch.randn(128, device=device, requires_grad=True)
    y = torch.randn(128, device=device)
    w = (torch.sort(x)[0] - torch.sort(y).values).abs().mean()
    q = torch.quantile(x, torch.tensor([0.1, 0.5, 0.9], device=device))
    (w + q.sum()).backward()


def nll_of_a_gaussian_head():
    mu, var = torch.randn(9, 2, device=device, requires_grad=True).unbind(1)
    target = torch.randn(9, device=device)
    loss = F.gaussian_nll_loss(mu, target, F.softplus(var) + 1e-3)
    loss.backward()
    pinball = torch.max(0.9 * (target - mu), -0.1 * (target - mu)).mean()
    poisson = F.poisson_nll_loss(mu, target.abs())
    return (pinball + poisson).tolist()
