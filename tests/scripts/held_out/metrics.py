"""Metrics as evaluation code computes them."""

import math
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F


device = "cuda"


def top_k_accuracy():
    output = torch.randn(32, 100, device=device)
    target = torch.randint(100, (32,), device=device)
    _, pred = output.topk(5, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    res = []
    for k in (1, 5):
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / 32))
    top1, top5 = res
    return top1[0].item(), top5.item()


class AverageMeter:
    def __init__(self):
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n


def average_meter_of_floats():
    meter = AverageMeter()
    for _ in range(3):
        loss = torch.rand(1, device=device).mean()
        meter.update(loss.item(), 8)
    return meter.sum / meter.count


def average_meter_of_tensors():
    meter = AverageMeter()
    for _ in range(3):
        loss = torch.rand(4, device=device).mean()
        meter.update(loss.detach(), 8)
    return f"{meter.sum / meter.count:.4f}"


def confusion_matrix_by_bincount():
    n = 6
    pred = torch.randint(n, (200,), device=device)
    target = torch.randint(n, (200,), device=device)
    keep = (target >= 0) & (target < n)
    hist = torch.bincount(n * target[keep] + pred[keep], minlength=n**2)
    hist = hist[: n * n].reshape(n, n)
    iou = torch.diag(hist) / (hist.sum(1) + hist.sum(0) - torch.diag(hist))
    return iou.nanmean().item()


def confusion_matrix_by_index_put():
    pred = torch.randint(4, (50,), device=device)
    target = torch.randint(4, (50,), device=device)
    cm = torch.zeros(4, 4, dtype=torch.long, device=device)
    ones = torch.ones_like(pred)
    cm.index_put_((target, pred), ones, accumulate=True)
    for row in cm.cpu().numpy():
        print(row.tolist())


def area_under_roc():
    score = torch.rand(100, device=device)
    label = (torch.rand(100, device=device) > 0.5).float()
    order = torch.argsort(score, descending=True)
    label = label[order]
    tps = torch.cumsum(label, 0)
    fps = torch.cumsum(1 - label, 0)
    tpr = tps / tps[-1]
    fpr = fps / fps[-1]
    return torch.trapezoid(tpr, fpr).cpu().item()


def expected_calibration_error():
    conf = torch.rand(64, device=device)
    hit = torch.rand(64, device=device) < conf
    bounds = torch.linspace(0, 1, 6)
    ece = torch.zeros(1, device=device)
    for low, high in zip(bounds[:-1], bounds[1:]):
        in_bin = conf.gt(low.item()) & conf.le(high.item())
        share = in_bin.float().mean()
        if share.item() > 0:
            ece += (conf[in_bin].mean() - hit[in_bin].float().mean()).abs() * share
    return ece


def mean_per_class():
    preds = torch.randint(5, (40,), device=device)
    target = torch.randint(5, (40,), device=device)
    scores = {}
    for c in torch.unique(target):
        sel = target == c
        scores[int(c)] = (preds[sel] == c).float().mean().item()
    return scores


def f1_from_one_hot():
    pred = F.one_hot(torch.randint(3, (30,), device=device), 3)
    true = F.one_hot(torch.randint(3, (30,), device=device), num_classes=3)
    tp = (pred * true).sum(0)
    fp = (pred * (1 - true)).sum(0)
    fn = ((1 - pred) * true).sum(0)
    f1 = 2 * tp / (2 * tp + fp + fn).clamp_min(1)
    macro = f1.mean()
    return {"f1": macro, "per_class": f1.tolist()}


def perplexity():
    nll, n = torch.zeros((), device=device), 0
    for _ in range(4):
        logits = torch.randn(2, 6, 20, device=device)
        ids = torch.randint(20, (2, 6), device=device)
        nll += F.cross_entropy(
            logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"
        )
        n += ids[:, 1:].numel()
    return math.exp(nll / n)


def psnr_and_ssim_like():
    a = torch.rand(2, 3, 16, 16, device=device)
    b = (a + 0.1 * torch.randn_like(a)).clamp_(0, 1)
    mse = ((a - b) ** 2).mean(dim=(1, 2, 3))
    psnr = 20 * torch.log10(1.0 / torch.sqrt(mse))
    window = torch.ones(3, 1, 5, 5, device=device) / 25
    mu = F.conv2d(a, window, groups=3)
    var = F.conv2d(a * a, window, groups=3) - mu.pow(2)
    return np.mean(psnr.cpu().numpy()), var.mean()


def running_statistics():
    totals = defaultdict(float)
    for _ in range(2):
        x = torch.randn(16, device=device)
        stats = torch.stack([x.mean(), x.std(), x.abs().max()])
        mean, std, peak = stats.tolist()
        totals["mean"] += mean
        totals["std"] += std
        totals["max"] = max(totals["max"], peak)
    return dict(totals)


def builtin_max_and_sum():
    scores = [torch.rand((), device=device) for _ in range(3)]
    best = max(scores)
    total = sum(scores)
    ranked = sorted(scores)
    return best, total, ranked[0]


def sequence_matches_as_lists():
    pred = torch.randint(9, (3, 5), device=device)
    gold = torch.randint(9, (3, 5), device=device)
    hits = 0
    for p, g in zip(pred.tolist(), gold.cpu().tolist()):
        hits += p == g
    exact = (pred == gold).all(dim=1).sum()
    return hits, exact.item()


def regression_report():
    y = torch.randn(40, device=device)
    yhat = y + torch.randn(40, device=device) * 0.1
    ss_res = torch.sum((y - yhat) ** 2)
    ss_tot = torch.sum((y - torch.mean(y)) ** 2)
    r2 = 1 - ss_res / ss_tot
    pearson = torch.corrcoef(torch.stack([y, yhat]))[0, 1]
    hist = torch.histc(yhat, bins=10, min=-3, max=3)
    print("r2 %.3f" % r2, "pearson", round(pearson.item(), 3), hist.int().tolist())


def histogram_of_activations():
    x = torch.randn(500, device=device)
    counts = torch.histc(x, bins=20)
    edges = torch.linspace(-4, 4, 9, device=device)
    where = torch.bucketize(x, edges)
    per = torch.bincount(where, minlength=10)
    return counts, per, torch.median(x), torch.mode(where).values


def retrieval_recall():
    q = F.normalize(torch.randn(10, 16, device=device), dim=-1)
    db = F.normalize(torch.randn(30, 16, device=device), dim=-1)
    rank = (q @ db.T).argsort(dim=-1, descending=True)
    gt = torch.arange(10, device=device).unsqueeze(-1)
    pos = torch.nonzero(rank == gt)[:, 1]
    recalls = [(pos < k).float().mean() for k in (1, 5, 10)]
    mrr = (1.0 / (pos + 1)).mean()
    return [r.item() for r in recalls], mrr.item()
